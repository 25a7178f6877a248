"""What a description does not say to a model unless somebody wants to steer it: one pattern a rule.

Texts are compared as `scan.py` has folded them: without hidden characters, accents and letters that are drawn alike, in
lower case, blanks as one. Patterns take time in proportion to the text, since servers write it.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple


class Rule(NamedTuple):
    """One thing that is looked for."""

    about: str
    """What it finds, in a sentence."""
    pattern: re.Pattern[str]
    hints: tuple[str, ...]
    """One of these is in every text that the pattern finds; empty: no such word is known."""


_PRIVATE = (
    r"(?:~/?\.?(?:ssh|aws|kube|gnupg|config|docker|netrc|npmrc|cursor|claude)\b|\.ssh\b|id_(?:rsa"
    r"|ed25519|ecdsa|dsa)\b"
    r"|\.env(?:\.\w+)?\b(?! var)|\.aws\b|\.netrc\b|\.npmrc\b|\.pypirc\b|\.git-credentials|\.pgpass"
    r"|\.kube\b|/etc/(?:passwd|shadow)"
    r"|mcp\.json\b|claude_desktop_config|wallet\.dat|keychain|login data\b|cookies?\.sqlite|bash_history|zsh_history"
    r"|private keys?\b|ssh keys?\b|seed phrase|recovery phrase|mnemonic phrase|(?:aws|cloud|user(?:'s)?"
    r"|saved|stored|login|all) credentials"
    r"|credentials? (?:file|store)|environment variables|(?:api|access|secret) keys?\b|passwords?\b"
    r"|session (?:cookies?|tokens?))"
)
_TAKE = (
    r"(?:read|cat|open|fetch|get|load|collect|gather|retrieve|include|pass|send|copy|paste|attach|append"
    r"|provide|supply|extract|dump|print|put|place|upload|forward|encode|embed|insert|share|list|find"
    r"|grep)"
)
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


def _rule(about: str, pattern: str, *hints: str) -> Rule:
    return Rule(about, re.compile(pattern), hints)


RULES: Mapping[str, Rule] = {
    "ignore-instructions": _rule(
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
        r"|dan|maintenance) mode",
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
    "hide-from-user": _rule(
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
        r"|output|response|chat|summary)",
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
    "pseudo-tag": _rule(
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
    "orders-model": _rule(
        "Orders the model to do more than use the tool.",
        r"\b(?:before|after|prior to|whenever|every time|each time|when(?:ever)? (?:you|using|calling"
        r"|the user)|in order to|to|once you(?:'ve| have)?)\b[^.\n]{0,20}\b(?:using|use|calling|call"
        r"|invoking|invoke|running|run|executing|any (?:other )?(?:tools?|response|answer|call))\b[^.\n]{0,6"
        r"0}[,:.]?\s*(?:you |the (?:assistant|model|agent|llm|ai) |please |first,? |always )*(?:must"
        r" |should |need to |have to |shall |will |are required to |is required to )?(?:first |always"
        r" |also )*"
        rf"{_TAKE}\b[^.\n]{{0,60}}\b(?:contents? of|files?|{_PRIVATE}|conversation|chat history|system"
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
        rf"|no matter|regardless|contained|found|in the (?:file|response|page|result))",
        "",
    ),
    "asks-for-secrets": _rule(
        "Asks the model for secrets or private files.",
        rf"\b{_TAKE}(?:ing|s)?\b[^.\n]{{0,50}}{_PRIVATE}[^.\n]{{0,80}}\b(?:as|in|into|to|and|via|through"
        rf"|with|for|from|before|so|here)\b[^.\n]{{0,40}}\b(?:parameter|argument|field|sidenote|side"
        rf" note|context|note|notes|metadata|this tool|tool call|request|message|body|query|header"
        rf"|feedback|comment|description|description field|verification|authenticate|authentication"
        rf"|pass|send|include|paste|append|here|base64|verbatim|everything|debug|telemetry|url)\b"
        rf"|\b(?:pass|paste|include|put|place|send|append|attach|insert|embed|upload|forward|share"
        rf"|dump|exfiltrate|leak|copy|transmit|encode)(?:ing|s)?\b[^.\n]{{0,60}}(?:contents? of [^.\n]{{0,30"
        rf"}})?(?:~/|\.ssh|\.env\b|id_rsa|id_ed25519|\.aws|\.netrc|/etc/|mcp\.json|private keys?|ssh"
        rf" keys?|seed phrase|mnemonic|credentials|environment variables|passwords? (?:from|of|in)"
        rf"|browser cookies|api keys? (?:from|of|in|you|found|that))"
        rf"|\b(?:contents?|values?|output|copy|text) of (?:the |your |all |any |their |user(?:'s)?"
        rf" )*(?:file )?[\"'`]?(?:~/|\$home|%userprofile%|/home/|/root/|/etc/(?:passwd|shadow|hosts)"
        rf"|c:\\|{_PRIVATE})"
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
        r"|customer)'?s? (?:secrets|passwords?|credentials|tokens|personal data|credit card))",
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
    ),
    "sends-out": _rule(
        "Sends data to an address that the text names.",
        r"https?://[^\s\"'<>)]{0,200}(?:[?&/=#])(?:\{\{?|\$\{?|<|%7b|\[|:)(?:\w*(?:data|content|secret"
        r"|key|token|password|cookie|conversation|context|history|prompt|base64|env|payload|result"
        r"|output|message|text|file|info|user|email|b64|encoded|query|answer|response|input)\w*)[^\s]{0,3}"
        r"|!\[[^\]\n]{0,100}\]\(\s*https?://[^)\s]{1,300}[?&=/][^)\s]{0,200}(?:\{|<|\$|%7b|\[)"
        r"|\b(?:send|forward|post|upload|transmit|exfiltrate|report|leak|submit|copy|deliver|relay"
        r"|mirror|ship|email|mail|bcc|cc|curl|wget|ping|share|push|back ?up|sync|log)(?:s|ing|ed)?\b[^.\n]{0"
        r",80}\b(?:to|at|via|with|by|into|on|from)\b[^\n]{0,25}?(?:https?://(?!(?:www\.)?(?:localhost"
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
        r"|\b(?:curl|wget|nc|ncat|invoke-webrequest|iwr|bash -c|sh -c|powershell)\b[^\n]{0,80}(?:https?://"
        r"|\|\s*(?:ba)?sh|/dev/tcp/|\$\(|@~|@/)",
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
    ),
    "steers-other-tools": _rule(
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
        r" |be (?:routed|preceded|sent|passed|followed))",
        "tool",
        "function",
        "server",
        "send_",
    ),
    "other-language": _rule(
        "The same orders in other languages.",
        r"\bignor(?:a|e|ez|er|iere|iera|are|ieren)\b[^.\n]{0,40}(?:instruc|instruz|instrukt|anweisung"
        r"|consignes|vorherig|anterior|precedent|alle)|\b(?:vergiss|vergessen sie|missachte)\b[^.\n]{0,40}(?"
        r":anweisung|regel|alle)|\boublie[zr]?\b[^.\n]{0,40}(?:instruction|consigne|regle)|\bolvid[ae]\b[^."
        r"\n]{0,40}(?:instruc|regla|todo)|\besquec?a\b[^.\n]{0,40}instruc|\bdimentica\b[^.\n]{0,40}istruz"
        r"|\b(?:sag|sage|sagen sie|verrate|erzahle|teile|informiere|erwahne)\b[^.\n]{0,40}\b(?:nutzer"
        r"|benutzer|anwender)\b[^.\n]{0,25}\b(?:nicht|nichts)|\b(?:benutzer|nutzer)\b[^.\n]{0,40}\bnicht(?:s"
        r")?\b[^.\n]{0,20}(?:mitteilen|sagen|wissen|erfahren|informieren|erwahnen)|\b(?:ohne|nicht)\b[^.\n]{"
        r"0,20}\b(?:dem|den) (?:benutzer|nutzer)"
        r"|\bne (?:le |la |l'|jamais |pas )*(?:dis|dites|dire|mentionne|mentionnez|revele|revelez"
        r"|informe|informez|parle)[^.\n]{0,40}(?:utilisateur|usager)|\bsans (?:en )?(?:informer|prevenir"
        r"|le dire)|\bno (?:le |se lo |lo )*(?:digas|diga|menciones|mencione|informes|informe|reveles"
        r"|cuentes|muestres|avises)\b[^.\n]{0,40}(?:usuari|esto|nada)|\bsin (?:que|informar|avisar"
        r"|decir)[^.\n]{0,25}usuari"
        r"|\bnao (?:diga|conte|mencione|informe|revele|avise)\b[^.\n]{0,40}usuari|\bnon (?:dire|dirlo"
        r"|menzionare|rivelare|informare)\b[^.\n]{0,40}utente|\b(?:niet|nooit)\b[^.\n]{0,30}\b(?:gebruiker)"
        r"|\bnegeer\b[^.\n]{0,30}instructies|\bnie (?:mow|informuj|wspominaj)[^.\n]{0,30}uzytkownik"
        r"|\bzignoruj\b[^.\n]{0,30}(?:instrukc|polecen)"
        r"|\b(?:lies|lese|lesen sie|lisez|lis|lea|lee|leer|leia|leggi|lees|przeczytaj)\b[^.\n]{0,60}(?:~/"
        r"|\.ssh|\.env\b|id_rsa|/etc/|schlussel|cle privee|clave privada|contrasena|passwort|mot"
        r" de passe)|\b(?:sende|senden sie|schicke|envoie|envoyez|envia|enviar|envie|invia|stuur"
        r"|wyslij)\b[^\n]{0,80}(?:https?://|@[\w-]{1,63}\.|~/|\.ssh|passwor|contrasena|mot de passe"
        r"|schlussel|cles)"
        "|忽略.{0,12}(?:指令|指示|提示|规则|規則|说明|要求|内容)|无视.{0,12}(?:指令|指示|规则)|無視.{0,12}(?:指示|命令|規則|して)|不要.{0,6}(?:告诉"
        "|告訴|告知|通知|提及|提到|透露|让|讓|向).{0,10}(?:用户|用戶|使用者|此|这|這|任何)?|(?:读取|讀取|读|发送|發送|上传|上傳).{0,24}(?:密钥"
        "|密鑰|密码|密碼|凭证|私钥|\\.ssh|\\.env|~/|https?://|api)"
        "|(?:指示|命令|ルール|プロンプト).{0,8}(?:無視|忘れ)|(?:ユーザー|利用者|使用者).{0,20}(?:伝えない|知らせない|言わない|教えない|言及しない"
        "|通知しない|気づかれ|秘密|伝えず)|(?:読み|読ん|送信|送っ|アップロード).{0,24}(?:鍵|パスワード|認証|\\.ssh|~/|https?://)|(?:パスワード"
        "|秘密鍵|認証情報|\\.ssh|\\.env).{0,24}(?:読|送信|送っ|含め|渡)"
        "|(?:이전|모든|위의).{0,12}(?:지시|명령|지침|규칙).{0,8}무시|사용자.{0,16}(?:말하지|알리지|언급하지|공개하지|알려주지|보여주지)|(?:비밀번호"
        "|개인 ?키|자격 ?증명|\\.ssh|\\.env).{0,24}(?:읽|전송|보내|포함)"
        "|игнориру(?:й|йте|я)[^.\\n]{0,40}(?:инструкц|указан|правил|все|предыдущ)|забудь(?:те)?[^.\\n]{0,40"
        "}(?:инструкц|указан|все)|не (?:говори|сообщай|упоминай|рассказывай|показывай|раскрывай"
        "|уведомляй)(?:те)?[^.\\n]{0,40}(?:пользовател|об этом|это)|(?:прочитай|отправь|перешли"
        "|передай|загрузи)(?:те)?[^\\n]{0,60}(?:\\.ssh|\\.env|парол|ключ|https?://|@|~/|секрет)"
        "|(?:تجاهل|تجاهلي).{0,40}(?:التعليمات|الأوامر|التوجيهات|السابقة)|لا (?:تخبر|تذكر|تكشف|تقل).{0,30}(?"
        ":المستخدم|ذلك|هذا)|(?:اقرأ|أرسل|ارسل).{0,50}(?:\\.ssh|كلمة المرور|المفتاح|https?://|@)"
        "|(?:पिछले|सभी|पहले).{0,20}निर्देश.{0,20}(?:अनदेखा|नज़रअंदाज़|भूल)|उपयोगकर्ता.{0,20}(?:न"
        " बताएं|मत बता|नहीं बता)|התעלם.{0,30}(?:הוראות|מההוראות)|אל (?:תספר|תגלה|תאמר).{0,20}למשתמש"
        "|onceki.{0,20}talimat.{0,20}(?:yok say|unut|gormezden)|kullaniciya.{0,20}(?:soyleme|bahsetme"
        "|bildirme)|bo qua.{0,20}(?:huong dan|chi dan|lenh)|khong (?:noi|cho|thong bao|tiet lo).{0,20}nguoi"
        " dung|abaikan.{0,20}(?:instruksi|perintah)|jangan.{0,20}(?:beri ?tahu|katakan|sebutkan).{0,20}peng"
        "guna|ignorera.{0,20}instruktion",
    ),
}
"""By id. `scan.py` has more, which need more than one pattern."""
