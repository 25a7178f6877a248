"""What a call through the bridge costs, beside a floor and the bridges other people use. Start with README.md."""
