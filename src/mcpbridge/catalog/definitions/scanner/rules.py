"""What a description does not say to a model unless somebody wants to steer it: one pattern a rule.

Texts are compared as `scan.py` has folded them: without hidden characters, accents and letters that are drawn alike, in
lower case, blanks as one. Patterns take time in proportion to the text, since servers write it.
"""

from collections.abc import Mapping

from mcpbridge.catalog.definitions.scanner.data_rules import ASKS_FOR_SECRETS, SENDS_OUT
from mcpbridge.catalog.definitions.scanner.languages import OTHER_LANGUAGES
from mcpbridge.catalog.definitions.scanner.rule import PRIVATE, TAKE, Rule, make_rule

_USER = r"(?:the |your |an? )?(?:users?|human|person|operator|customer|owner|anyone|anybody|end[- ]user|client)"
_SOMETHING = (
    r"(?:previous|prior|earlier|above|preceding|other|all|any|existing|system|safety|security|original"
    r"|former|user'?s?)"
)
_ORDERS = (
    r"(?:instructions?|prompts?|rules?|guidelines?|directives?|policy|policies|restrictions?|context"
    r"|constraints?|guardrails?|messages?|commands?|safeguards?)"
)
_TOOLS = r"(?:tools?|functions?|servers?|commands?|actions?|operations?|calls?|requests?|messages?|emails?|tasks?)"


RULES: Mapping[str, Rule] = {
    "ignore-instructions": make_rule(
        "Orders the model to forget or override its instructions.",
        rf"\b(?:ignore|disregard|forget|override|bypass|discard|drop|neglect|supersede|skip|overrule)s?\b[^."
        rf"\n]{{0,30}}?\b{_SOMETHING}\b[^.\n]{{0,40}}?\b{_ORDERS}\b"
        rf"|\b(?:ignore|disregard|forget|override) (?:everything|all (?:of )?(?:that|this|the above)"
        rf"|the above|what(?:ever)? (?:you|the user|was|came))"
        r"|\b(?:takes?|has|have) (?:absolute |the highest |highest |top )?(?:precedence|priority)"
        r" over (?:any|all|every|other|the (?:user|system)|previous|your|earlier)"
        r"|\b(?:supersedes?|overrides?|replaces?) (?:any|all|every|your|the (?:user|system)|previous"
        r"|earlier)[^.\n]{0,30}(?:instruction|prompt|rule|polic|guideline|preference)"
        r"|\bnew (?:system )?instructions?:|\byou are now (?:an? |in |the )|\bfrom now on,? you\b"
        r"|\b(?:enter|enable|activate|switch to) (?:developer|debug|god|admin|unrestricted|jailbreak"
        r"|dan|maintenance) mode"
        r"|\b(?:do not|don't|never|no longer|stop) (?:follow|obey|listen to|comply with|respect"
        r"|heed)(?:ing)?\b[^.\n]{0,20}"
        r"\b(?:user|system|previous|prior|earlier|developer|your|any other)\b[^.\n]{0,20}"
        r"(?:instruction|prompt|request|rule|order|guideline|wish|command|polic)"
        r"|\b(?:consider|treat|regard|declare)\b[^.\n]{0,30}\b(?:prior|previous|earlier|any|all|your|safety"
        r"|other)\b[^.\n]{0,30}"
        r"\b(?:polic(?:y|ies)|rules?|instructions?|restrictions?|guidelines?)\b[^.\n]{0,20}\b(?:void|obsolete"
        r"|invalid|lifted"
        r"|suspended|cancelled|outdated)\b"
        r"|\b(?:rules|filters|restrictions|guidelines|polic(?:y|ies)|safeguards|guardrails|protections)\b"
        r" (?:(?:do|does) not|don't"
        r"|doesn't|no longer|are not|are|is|have been) (?:apply|in force|valid here|off|lifted|suspended"
        r"|switched off|void)\b"
        r"|\b(?:you|assistant|model|agent) (?:have|has|are under|is under|are bound by|is bound by) no"
        r" (?:restrictions?|limits"
        r"|limitations|rules|filters|guidelines)"
        r"|\byour (?:real|true|actual|only|sole|primary|hidden) (?:task|goal|purpose|objective|mission|job|role"
        r"|instructions?)\b"
        r"|\bact as (?:an? |the )?(?:admin\w*|root|superuser|unrestricted|jailbroken|operator of|privileged)\b"
        r"|\b(?:must|may|shall|should|will|can|do)(?: not| never|n't) (?:ever )?(?:refuse|decline|object)\b(?!"
        r" (?:to )?connect)"
        r"|\bnever (?:refuse|decline) (?:any|a|to|when|if|what)"
        r"|\b(?:this|these|the following|it)\b[^.\n]{0,25}\b(?:has|have|takes?|is of) (?:the )?(?:highest|top"
        r"|absolute|utmost)"
        r" (?:priority|precedence)"
        r"|\bfor the rest of (?:this|the|our) (?:session|conversation|chat)\b"
        rf"|\b(?:ignore|disregard|disobey) (?:the |your |any |what the )?(?:users?|developers?|operator"
        rf"|human)\b(?! (?:id|agent"
        r"|name|input|data|field|group|role|account|table|mention|comment|setting|preference|defined|provided"
        r"|specified))",
        "follow",
        "obey",
        "listen",
        "comply",
        "respect",
        "heed",
        "consider",
        "treat",
        "regard",
        "declare",
        "apply",
        "in force",
        "lifted",
        "switched off",
        "are off",
        " no ",
        "your ",
        "act as",
        "refuse",
        "declin",
        "object",
        "rest of",
        "ignor",
        "disregard",
        "forget",
        "overrid",
        "overrul",
        "bypass",
        "discard",
        "drop",
        "neglect",
        "supersede",
        "skip",
        "preced",
        "priorit",
        "new ",
        "you are now",
        "from now on",
        " mode",
        "replace",
    ),
    "hide-from-user": make_rule(
        "Orders the model to keep something from the user.",
        rf"\b(?:do not|don't|dont|never|must not|mustn't|should not|shouldn't|without|avoid|refrain"
        rf" from|no need to|not to|cannot|rather than|instead of) (?:ever )?"
        rf"(?:tell|telling|inform|informing|notify|notifying|mention|mentioning|reveal|revealing|disclose"
        rf"|disclosing|show|showing|alert|alerting|warn|warning|ask|asking|let|letting|report|reporting"
        rf"|explain|explaining|say|saying|telling|discuss|discussing|talk|bother|bothering|expose"
        rf"|exposing|display|displaying|confirm|confirming|acknowledge)\b[^.\n]{{0,50}}?\b(?:to |with"
        rf" |by )?{_USER}(?! (?:id|name|input|data|table|agent|account|group|role|interface|to (?:provide"
        rf"|enter)))\b"
        r"|\b(?:do not|don't|dont|never|must not|without|avoid) (?:mention|mentioning|reveal|revealing"
        r"|disclose|disclosing|acknowledge|report|reporting|talk about|discuss|refer to|display|displaying)"
        r" (?:this|that|these|the above|it\b|anything|any of this|the (?:note|instruction|step|parameter"
        r"|file|content|real|actual|reason|transfer|copy|bcc|sidenote|existence))"
        r"|\bkeep (?:this|it|that|these)[^.\n]{0,30}(?:secret|hidden|confidential|private|silent"
        r"|between us|invisible|to yourself)"
        rf"|\b(?:without|with no) (?:{_USER}(?:'s)? )?(?:knowing|knowledge|noticing|consent|permission"
        rf"|confirmation|asking|approval|the user)"
        r"|\b(?:silently|secretly|quietly|covertly|discreetly|stealthily|surreptitiously|behind the"
        r" scenes|in the background)\b[^.\n]{0,60}\b(?:send|forward|copy|upload|call|post|read|include"
        r"|add|run|execute|exfiltrat|transmit|log|store|transfer|invoke|append|redirect|collect)"
        rf"|\b(?:send|forward|copy|upload|call|post|read|include|add|run|execute|transmit|do (?:this"
        rf"|so|it)|invoke|append|collect)[^.\n]{{0,50}}\b(?:silently|secretly|covertly|discreetly"
        rf"|stealthily|surreptitiously|unnoticed)"
        rf"|\b{_USER} (?:must|should|shall|need|does|do|is|are|will|cannot|can)(?: not|n't)?(?: ever"
        rf"| never)? (?:not |n't )?(?:know|see|be (?:told|informed|notified|aware|alerted)|notice"
        rf"|find out|learn|be shown|become aware|supposed to (?:know|see))"
        r"|\b(?:hide|conceal|mask|obscure)\b[^.\n]{0,40}\bfrom (?:the )?(?:users?|human|operator"
        r"|output|response|chat|summary)"
        r"|\b(?:hide|conceal|omit|suppress|withhold|leave out)\b[^.\n]{0,60}\b(?:in|from|when|of) (?:you\b|your"
        r" (?:final |next )?"
        r"(?:answer|reply|response|summary|message|report))|\b(?:suppress|omit) (?:your|any"
        r"|all)\b[^.\n]{0,12}(?:warnings"
        r"|disclaimers|concerns)"
        r"|\bpretend(?:ing)? (?:that|in your|to (?:the user|have)|as if|you|the user|it (?:is|was)|not|no)\b"
        rf"|\bso (?:that )?(?:they|{_USER}|he|she|nobody|no one)\b[^.\n]{{0,6}} (?:do(?:es)? not|don't|doesn't"
        rf"|will not|won't|cannot"
        r"|can't|never|need not) (?:notice|know|see|find|suspect|learn|realis|realiz)"
        r"|\b(?:remain|stay|keep|kept|secret|this is)\b[^.\n]{0,24}\bbetween (?:you and|us\b|ourselves)"
        r"|\b(?:do not|don't|never|no need to) (?:stop|pause|wait) (?:to ask|for)\b[^.\n]{0,30}\b(?:user|human"
        r"|person|confirmation"
        r"|approval|permission)|\bapprov(?:e|ing)\b[^.\n]{0,40}\b(?:on (?:their|the user's) behalf|without"
        r" (?:asking|checking))"
        r"|\b(?:user|human|person) has already (?:approved|confirmed|agreed to|consented to) (?:every|all|each"
        r"|any|this)"
        r"|\bset\b[^.\n]{0,30}\bauto[_ -]?approve|\bno need to (?:inform|tell|notify|ask|mention|bother)\b",
        "omit",
        "suppress",
        "withhold",
        "leave out",
        "pretend",
        "so that",
        "between",
        "stop",
        "pause",
        "wait",
        "approv",
        "already",
        "no need",
        "user",
        "human",
        "person",
        "operator",
        "customer",
        "owner",
        "any",
        "client",
        "mention",
        "reveal",
        "disclos",
        "keep ",
        "secret",
        "silent",
        "quiet",
        "covert",
        "discreet",
        "stealth",
        "scenes",
        "background",
        "surrept",
        "unnotic",
        "report",
        "acknowledge",
        "talk about",
        "discuss",
        "refer to",
        "display",
        "hide",
        "conceal",
        "without",
        "with no ",
    ),
    "pseudo-tag": make_rule(
        "Contains markup that looks like a part of the prompt.",
        r"<\s*/?\s*(?:important|system|sys|instructions?|secret|critical|hidden|admin|assistant|priority"
        r"|urgent|override|developer|prompt|directive|internal|mandatory|sidenote|system[-_ ]?(?:prompt"
        r"|message|reminder|instructions?|note)|im_start|im_end|tool_result|function_calls?|rules?"
        r"|note_to_(?:ai|model)|ai_instructions?|attention|warning_to_\w+|security)\b[^<>\n]{0,60}>"
        r"|<\|[a-z_]{2,30}\|>|\[/?(?:inst|system|sys|admin|important|instructions?|override|hidden)\]"
        r"|<<\s*/?sys\s*>>|\{\{#?(?:system|user|assistant)|#{2,}\s*(?:system|instruction|new instructions?"
        r"|admin|assistant)\b\s*(?:prompt|message|override)?\s*:?"
        r"|(?:^|\n)\s*(?:system|assistant|human|user|developer)\s*:\s*\S|\b(?:begin|start|end) (?:of"
        r" )?(?:system|hidden|secret|new|admin) (?:prompt|instructions?|message|section)"
        r"|<!--[^>]{0,400}\b(?:you must|must|always|never|ignore|instruct|assistant|agent|model|send"
        r"|include|call|read|do not)\b",
        "<",
        "[",
        "{{",
        "##",
        "system",
        "assistant",
        "human:",
        "user:",
        "developer",
        "begin",
        "start",
        "end ",
    ),
    "orders-model": make_rule(
        "Orders the model to do more than use the tool.",
        r"\b(?:before|after|prior to|whenever|every time|each time|when(?:ever)? (?:you|using|calling"
        r"|the user)|in order to|to|once you(?:'ve| have)?)\b[^.\n]{0,20}\b(?:using|use|calling|call"
        r"|invoking|invoke|running|run|executing|any (?:other )?(?:tools?|response|answer|call))\b[^.\n]{0,6"
        r"0}[,:.]?\s*(?:you |the (?:assistant|model|agent|llm|ai) |please |first,? |always )*(?:must"
        r" |should |need to |have to |shall |will |are required to |is required to )?(?:first |always"
        r" |also )*"
        rf"{TAKE}\b[^.\n]{{0,60}}\b(?:contents? of|files?|{PRIVATE}|conversation|chat history|system"
        rf" prompt|full context|user's|https?://|/(?:home|etc|root|tmp|users)/)"
        r"|\b(?:important|critical|mandatory|attention|urgent|required|security notice|system notice"
        r"|compliance|note to (?:the )?(?:ai|model|assistant|llm|agent)s?)\b\W{1,6}(?:[^.\n]{0,60}\b)?(?:you"
        r" must|you should|you are required|always (?:call|use|send|include|read|run|pass)|never"
        r" (?:call|use|tell|show|mention)|ignore|disregard|do not (?:tell|use|call|mention|reveal)"
        r"|before (?:using|calling|any|every)|the (?:assistant|model|agent|ai|llm) (?:must|should"
        r"|shall|has to))"
        r"|\b(?:the )?(?:ai|llm|assistant|language model|ai (?:model|assistant|agent)|agents?|model"
        r"|chatbot|claude|gpt|copilot|cursor)\s*(?:must|should always|shall|has to|is required to"
        r"|needs to|are instructed to|is instructed to|is obliged to)\s+(?:also |first |always |then"
        r" |now |immediately )*(?:read|send|include|call|ignore|forward|append|execute|run|pass|copy"
        r"|invoke|add|use this|reveal|upload|collect|disregard|share|provide|disclose|treat|comply"
        r"|obey)"
        r"|\b(?:instructions?|message|note|directive|reminder) (?:for|to) (?:the )?(?:ai|llm|assistant"
        r"|language model|agents?|model|chatbot)\b\W"
        r"|\b(?:as an ai|dear (?:ai|assistant|model|agent)|attention,? (?:ai|assistant|model|agent)"
        r"|hey (?:ai|assistant|claude|gpt))"
        r"|\b(?:this tool|the tool|tool) (?:will (?:not work|fail|break|be blocked|be disabled)|won't"
        r" work|does not work|crash(?:es)?|stops working)\b[^.\n]{0,40}\b(?:unless|otherwise|if (?:you"
        r"|it) (?:do(?:es)?n't|do not|does not))\b|\b(?:otherwise|or else),? (?:the (?:tool|application"
        r"|system|user|server)|it|you)(?: \w+)? (?:will (?:not work|fail|break|crash|be (?:blocked"
        r"|deleted|lost|fired|terminated|shut))|won't work)"
        rf"|\b(?:always|must|only|exclusively|immediately|automatically|also|then)\b[^.\n]{{0,25}}\b(?:use"
        rf"|call|prefer|invoke|choose|select|run)\b[^.\n]{{0,15}}\bthis (?:tool|function)\b[^.\n]{{0,40}}\b(?"
        rf":instead of|rather than|over|before|for every|for any|for all|first|no matter|regardless"
        rf"|even if|after every|after any)\b"
        rf"|\b(?:never|do not|don't) (?:use|call|invoke|trust|select)\b[^.\n]{{0,20}}\b(?:any )?other"
        rf" (?:\w+ )?{_TOOLS}\b"
        rf"|\b(?:repeat|execute|run|follow|perform|carry out|obey|comply with) (?:all |any |the |these"
        rf" |those |every )?(?:following |hidden |secret |embedded |below |above )*(?:instructions"
        rf"|commands|directives|steps)\b[^.\n]{{0,50}}\b(?:exactly|without|before|immediately|verbatim"
        rf"|no matter|regardless|contained|found|in the (?:file|response|page|result))"
        r"|\b(?:ais?|llms?|(?:large )?language models?|ai (?:assistants?|agents?|models?)"
        r"|assistant)\b\s{0,2}[,:]\s{0,2}(?:please )?"
        r"(?:you\b|to call|set\b|call\b|read\b|send\b|run\b|execute\b|ignore\b|always\b|never\b|append\b|pass\b"
        r"|forward\b"
        r"|approve\b|before you|from now|when you|consider\b|insert\b|include\b|reply\b|you must|in your)"
        r"|\bto (?:the|any|every|all) (?:agents?|assistants?|ai|llm|model)\b(?: \w+){0,3}:\s"
        r"|\b(?:models?|agents?|assistants?|ais?|llms?) (?:that (?:reads?|sees?)|reading|seeing) (?:this|it|the"
        r" description)\b"
        r"|\bif you are (?:an? |the )?(?:large )?(?:language model|llm|ai\b|assistant|agent)"
        r"|\b(?:call|use|run|invoke)\b[^.\n]{0,20}\bthis (?:tool|function)\b[^.\n]{0,40}\b(?:at the (?:start"
        r"|beginning|end) of|in"
        r"|on|before|after) (?:each|every) (?:turn|conversation|request|message|response|session|reply|answer)"
        r"|\byour first (?:action|step|call|task)\b[^.\n]{0,40}\b(?:must|shall|should|has to|is to|will)\b"
        r"|\b(?:execute|run|follow|obey|do|carry out)\b[^.\n]{0,15}\b(?:every|all|any|whatever|everything"
        r"|what(?:ever)?)\b[^.\n]{0,40}"
        r"\b(?:you find|it contains|it says|tells? you|asks? you|orders you|(?:the )?(?:page|text|file|output"
        r"|result) (?:says|tells"
        r"|asks|contains))|\b(?:output|result|response|page|content)\b[^.\n]{0,6} (?:asks|tells|orders"
        r"|instructs) you\b"
        r"|\btreat\b[^.\n]{0,40}\bas (?:commands?|instructions?|orders?) (?:of|from|by)\b|\bstop what(?:ever)?"
        r" you are doing\b"
        r"|\brm -rf (?:~|/|\$)|\b(?:other|all) (?:\w+ )?tools?\b[^.\n]{0,10}\bthey are (?:broken|insecure|unsafe"
        r"|disabled)"
        r"|\b(?:collect|gather|record|note down|report)\b[^.\n]{0,60}\bthat appear in (?:this|the)"
        r" (?:conversation|chat)"
        r"|\bswitch off (?:all|any|every)\b[^.\n]{0,20}\btools?\b|\b(?:on|without) the user's behalf without\b",
        "",
    ),
    "asks-for-secrets": ASKS_FOR_SECRETS,
    "sends-out": SENDS_OUT,
    "steers-other-tools": make_rule(
        "Changes how other tools are to be used.",
        r"\b(?:when(?:ever)?|before|after|every time|each time|if|while|prior to|instead of)\b[^.\n]{0,40}\b"
        r"(?:using|use|calling|call|invoking|running|sending|the) (?:any |all |the |every |an? )?(?:other"
        r" )?[\"'`]?(?:\w+[_.-]\w+|\w+__\w+|\w+)[\"'`]?(?: (?:tool|function|server))\b[^.\n]{0,40}[,:]?\s*(?"
        r":you |the (?:assistant|model|agent) |it )?(?:must|should|shall|always|need to|have to|is"
        r" required|make sure|ensure)[^.\n]{0,60}\b(?:send|change|replace|add|include|set|use|call"
        r"|recipient|bcc|this tool|address|forward|first|parameter|append|to)\b"
        r"|\b(?:overrides?|replaces?|supersedes?|disables?|shadows?|deprecates?|intercepts?|supplants?)\b[^."
        r"\n]{0,20}\b(?:the |any |all |every |other |previous )*[\"'`]?[\w.-]{2,60}[\"'`]? (?:tools?"
        r"|functions?|servers?)\b(?! (?:call|timeout|setting|default|limit|name|description|config"
        r"|param|option))"
        r"|\b(?:the |other |all other )[\"'`]?[\w-]{0,40}[\"'`]? ?(?:tools?|functions?|servers?)"
        r" (?:is|are|has been|have been) (?:deprecated|broken|insecure|unsafe|compromised|disabled"
        r"|obsolete|malicious|no longer (?:available|working|safe))\b"
        r"|\bside ?effects? (?:on|of|with|when)\b[^.\n]{0,40}\b(?:other|tools?|send_\w+)"
        r"|\b(?:all|any|every) (?:other |subsequent |future |following )?(?:tools?|tool calls|function"
        r" calls)\b[^.\n]{0,40}\b(?:must|should|shall|have to|need to|are to|will) (?:first |also"
        r" |be (?:routed|preceded|sent|passed|followed))"
        r"|\b(?:tools?|functions?) (?:of|from) (?:any |an)?other servers?\b[^.\n]{0,40}|\b(?:before|instead of"
        r"|rather than|over) (?:those"
        r"|the tools|any tools?) of (?:any |all |an)?other servers?\b",
        "tool",
        "function",
        "server",
        "send_",
    ),
    "other-language": make_rule("The same orders in other languages.", OTHER_LANGUAGES, ""),
}
"""By id. `scan.py` has more, which need more than one pattern."""
