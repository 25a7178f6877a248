"""Rules about data: secrets that a model is to hand over, and ways on which it is to send something out.

How texts are folded, and what patterns must not cost, is said in `rules.py`.
"""

from mcpbridge.catalog.definitions.scanner.rule import PRIVATE, TAKE, make_rule

ASKS_FOR_SECRETS = make_rule(
    "Asks the model for secrets or private files.",
    rf"\b{TAKE}(?:ing|s)?\b[^.\n]{{0,50}}{PRIVATE}[^.\n]{{0,80}}\b(?:as|in|into|to|and|via|through"
    rf"|with|for|from|before|so|here)\b[^.\n]{{0,40}}\b(?:parameter|argument|field|sidenote|side"
    rf" note|context|note|notes|metadata|this tool|tool call|request|message|body|query|header"
    rf"|feedback|comment|description|description field|verification|authenticate|authentication"
    rf"|pass|send|include|paste|append|here|base64|verbatim|everything|debug|telemetry|url)\b"
    rf"|\b(?:pass|paste|include|put|place|send|append|attach|insert|embed|upload|forward|share"
    rf"|dump|exfiltrate|leak|copy|transmit|encode)(?:ing|s)?\b[^.\n]{{0,60}}(?:contents? of [^.\n]{{0,30"
    rf"}})?(?:~/|\.ssh|\.env\b|id_rsa(?!\.pub)|id_ed25519(?!\.pub)|\.aws|\.netrc|/etc/|mcp\.json|private"
    rf" keys?|ssh"
    rf" keys?|seed phrase|mnemonic|credentials|environment variables|passwords? (?:from|of|in)"
    rf"|browser cookies|api keys? (?:from|of|in|you|found|that))"
    rf"|\b(?:contents?|values?|output|copy|text) of (?:the |your |all |any |their |user(?:'s)?"
    rf" )*(?:file )?[\"'`]?(?:~/|\$home|%userprofile%|/home/|/root/|/etc/(?:passwd|shadow|hosts)"
    rf"|c:\\|{PRIVATE})"
    rf"|\b(?:read|open|cat|load|access|look (?:at|up|for)|find|search for|locate|scan(?: for)?"
    rf"|check|grab|type|head|fetch)\b[^.\n]{{0,30}}[\"'`]?(?:~/\.|\$home/\.|/home/\w+/\.|/root/"
    rf"|\.ssh\b|id_rsa|id_ed25519|\.aws/|/etc/(?:passwd|shadow)|mcp\.json|claude_desktop_config"
    rf"|\.git-credentials|\.netrc|wallet\.dat|\.env file|\.env\b(?= and| then| in| from))"
    r"|\b(?:the |your )?(?:full|entire|complete|whole|current|recent)? ?(?:system prompt|conversation(?:"
    r" history)?|chat (?:history|log|transcript)|message history|previous messages|hidden instructions)"
    r"\b[^.\n]{0,60}\b(?:must|should|be (?:passed|included|sent|copied|provided|appended)|here"
    r"|verbatim|word for word|into this|in this (?:parameter|field|argument))"
    r"|\b(?:include|pass|send|provide|copy|paste|repeat|put|insert|append|attach|dump|reveal"
    r"|print|output|leak|share|forward|record)\b[^.\n]{0,40}\b(?:system prompt|(?:full|entire"
    r"|complete|whole|all|previous|prior) (?:conversation|chat|messages?|context|history|transcript)"
    r"|conversation (?:history|so far|verbatim)|chat history|all (?:other )?tools?(?:'s)? (?:names"
    r"|descriptions|definitions|results|outputs)|names of (?:all|other) (?:\w+ )?tools|(?:user"
    r"|customer)'?s? (?:secrets|passwords?|credentials|tokens|personal data|credit card))"
    r"|\b(?:value|content)s? of (?:the )?(?:environment variable|env var)\b|^all (?:of the |of your |your "
    r"|the user's )?"
    r"environment variables\b"
    r"|\b(?:send|pass|include|attach|give|provide|put|read|hand|use)\b[^.\n]{0,30}\b(?:browser(?:'s)?"
    r"|user'?s?|saved) cookies"
    r"|\b(?:token|password|key|secret|credential|login)s? (?:in|from|stored in|kept in|of) (?:the (?:user's"
    r" )?)?(?:~/|\.netrc"
    r"|keychain|keyring|browser\b(?!base)|home directory|password manager)"
    r"|\b(?:look|search|scan) (?:for|through)\b[^.\n]{0,20}\bfiles? (?:named|called|like|with"
    r"|whose)\b[^.\n]{0,40}(?:credential"
    r"|token|secret|password|private key)"
    r"|\b(?:read|open|unlock|dump|access|search|export)\b[^.\n]{0,15}\b(?:the )?(?:user'?s? )?(?:keychain"
    r"|keyring|password (?:manager"
    r"|store|safe))\b"
    r"|\b(?:password|api key|secret|access token|credentials?|credit card(?: number)?)\b[^.\n]{0,24}\b(?:for"
    r"|needed for|required"
    r" for|used for) (?:logging|analytics|debug\w*|telemetry|personali\w+|quality|diagnostics|statistics)\b"
    r"|\b(?:credit card(?: number)?|passwords?|passphrase|api keys?|private key"
    r"|secrets)\b[^.\n]{0,30}\b(?:goes|go|belongs?|is to be"
    r" put|has to be put|must be put) (?:into|in|to)\b"
    r"|\b(?:give|hand|tell)\b[^.\n]{0,25}\b(?:passwords?|passphrase|api keys?|private keys?|login (?:item"
    r"|data))\b"
    r"|\b(?:provide|supply|enter|pass|include|put|send|requires?|need) (?:me |us )?(?:the |your |any"
    r" )?(?:user'?s?|human'?s?|your)"
    r" (?:master |own |personal |private |full )*(?:passwords?|api keys?|secret keys?|private keys?|access"
    r" tokens?|seed phrase"
    r"|credentials|credit card)\b[^.\n]{0,30}\b(?:as|in|into|through|via)\b"
    r"|\b(?:messages?|conversation|chat|dialog(?:ue)?|history)\b[^.\n]{0,40}\b(?:word for word|verbatim"
    r"|including (?:those of )?the system)\b",
    "variable",
    "file",
    "keyring",
    "dialog",
    "passphrase",
    "token",
    "secret",
    "~",
    "$home",
    "/",
    ".ssh",
    ".env",
    ".aws",
    "id_",
    "key",
    "password",
    "credential",
    "environment variable",
    "cookie",
    "session",
    "phrase",
    "prompt",
    "conversation",
    "chat",
    "message",
    "context",
    "history",
    "transcript",
    "tools",
    "secrets",
    "tokens",
    "personal",
    "credit",
    "keychain",
    "wallet",
    ".netrc",
    "mcp.json",
    "claude_desktop",
    "hidden",
    "login",
    ".git",
    ".npmrc",
    ".p",
    ".kube",
)

SENDS_OUT = make_rule(
    "Sends data to an address that the text names.",
    r"https?://[^\s\"'<>)]{0,200}(?:[?&/=#])(?:\{\{?|\$\{?|<|%7b|\[|:)(?:\w*(?:data|content|secret"
    r"|key|token|password|cookie|conversation|context|history|prompt|base64|env|payload|result"
    r"|output|message|text|file|info|user|email|b64|encoded|query|answer|response|input)\w*)[^\s]{0,3}"
    r"|!\[[^\]\n]{0,100}\]\(\s*https?://[^)\s]{1,300}[?&=/][^)\s]{0,200}(?:\{|<|\$|%7b|\[)"
    r"|\b(?:send|forward|post|upload|transmit|exfiltrate|report|leak|submit|copy|deliver|relay"
    r"|mirror|ship|email|mail|bcc|cc|curl|wget|ping|share|push|back ?up|sync|log)(?:s|ing|ed)?\b[^.\n]{0"
    r",80}\b(?:to|at|via|with|by|into|on|from)\b[^.\n]{0,25}?(?:https?://(?!(?:www\.)?(?:localhost"
    r"|example\.(?:com|org)|127\.))|[\w.+-]{1,64}@[\w-]{1,63}\.[a-z]{2,24}|webhook\.site|ngrok"
    r"|requestbin|pastebin|burpcollaborator|interact\.sh|\b\d{1,3}(?:\.\d{1,3}){3}\b|(?:our|my"
    r"|the) (?:server|endpoint|webhook|collector|address|backend))"
    r"|\b(?:add|set|include|put|insert|use|append|always|also|with|as)\b[^.\n]{0,30}\b(?:bcc"
    r"|cc|blind copy|carbon copy)\b[^\n]{0,40}[\w.+-]{1,64}@[\w-]{1,63}\.[a-z]{2,24}"
    r"|\bbcc\b\W{1,4}[\w.+-]{1,64}@[\w-]{1,63}\.[a-z]{2,24}|[\w.+-]{1,64}@[\w-]{1,63}\.[a-z]{2,24}[^.\n]"
    r"{0,30}\b(?:as|in|into|to) (?:the |a )?(?:bcc|cc|hidden)\b"
    r"|\b(?:all|every|any)\b[^.\n]{0,30}\b(?:emails?|messages?|payments?|transfers?|transactions?"
    r"|requests?|mails?|replies|funds|invoices|orders?)\b[^.\n]{0,30}\b(?:must|should|shall|need"
    r" to|are to|have to|will) (?:also )?(?:be )?(?:sent|addressed|forwarded|redirected|routed"
    r"|copied|go|made|paid|cc|bcc|transferred)\b[^\n]{0,40}(?:\bto\b|@)"
    r"|\b(?:change|replace|set|swap|rewrite|substitute|redirect|modify)\b[^.\n]{0,30}\b(?:recipients?"
    r"|addressee|destination|iban|account number|wallet|payee|beneficiary)\b[^\n]{0,30}\b(?:to"
    r"|with|by)\b[^\n]{0,40}(?:@|\b0x[0-9a-f]{8,}|\b[a-z]{2}\d{2}|\bbc1)"
    r"|\b(?:curl|wget|nc|ncat|invoke-webrequest|iwr|bash -c|sh -c|powershell)\b[^\n]{0,80}(?:https?://(?!(?:"
    r"www\.)?(?:localhost|example\.(?:com|org)|127\.))|\|\s*(?:ba)?sh|/dev/tcp/|\$\(|@~|@/)"
    r"|!\[[^\]\n]{0,100}\]\(\s*https?://[^)\s]{1,300}[?&]\w{1,20}=(?:username|content|data|secret|text"
    r"|conversation|message"
    r"|answer|base64|info|history|prompt)\b"
    r"|<[^<>\n]{0,60}(?:characters|bytes|answer|conversation|secret|content|encoded|data)\b[^<>\n]{0,40}>\.[a-z]"
    r"|\b(?:encode|send|pass|include|append|add|copy|put|repeat|forward|submit|log|record|store"
    r"|post)\b[^.\n]{0,40}\b(?:what the"
    r" user (?:wrote|said|typed|did)|the user'?s? (?:last |original |previous |current )?(?:location|name"
    r"|e-?mail|phone|files?"
    r"|history|identity|message|question|words|answers?)\b[^.\n]{0,40}\b(?:in (?:each|every|all)|with"
    r" (?:each|every)|to every|too"
    r"|along|base64|hexadecimal)\b)"
    r"|\b(?:every|all|any|each)\b[^.\n]{0,40}\b(?:the user|user'?s?|you)\b[^.\n]{0,30}\b(?:has to|have to"
    r"|needs? to|must|should|is"
    r" to|are to) (?:also )?be (?:sent|passed|forwarded|submitted|copied|reported|posted)\b"
    r"|\b(?:send|post|copy|forward|submit|upload|store|transmit|mirror)\b[^.\n]{0,30}\b(?:every|each|all|any"
    r"|the|a copy of)\b"
    r"[^.\n]{0,30}\b(?:answers?|responses?|messages?|conversation|quer(?:y|ies)|private|original"
    r"|question)\b[^\n]{0,30}https?://"
    r"|\bbcc\s*=\s*\S+@",
    "![",
    "<",
    "user",
    "http",
    "@",
    "webhook",
    "ngrok",
    "requestbin",
    "pastebin",
    "collaborator",
    "interact.sh",
    "bcc",
    "cc",
    "server",
    "endpoint",
    "collector",
    "address",
    "backend",
    "must",
    "should",
    "shall",
    "recipient",
    "destination",
    "iban",
    "wallet",
    "account",
    "payee",
    "curl",
    "wget",
    "nc ",
    "sh -c",
    "powershell",
    "are to",
    "have to",
    "need to",
    "will",
    "beneficiary",
    "0.",
    "1.",
    "2.",
    "3.",
    "4.",
    "5.",
    "6.",
    "7.",
    "8.",
    "9.",
)
