"""What English words mean: WordNet, the open wordnets of other languages, emoji, and the words of software.

    python3 training/sources/meaning.py

Writes training/.data/meaning.jsonl.gz: pairs of words, of words and definitions, of definitions and examples.
"""

import re
import sys
import tarfile
from collections import Counter, defaultdict
from itertools import combinations

from download import npm
from texts import github, load, pair, write

SENSES = 3  # senses of a word that count as common
USED = 4  # definitions that use a word that counts as common
PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
# Lexicographer files whose words are rare unless they were counted in text: animals, plants …
RARE_FILES = {"05", "08", "13", "17", "18", "20", "27"}

# Wordnets with a permissive licence, by language: the file in omwn/omw-data.
OPEN_WORDNETS = {
    "bg": "bul/wn-data-bul.tab", "ca": "mcr/wn-data-cat.tab", "da": "dan/wn-data-dan.tab",
    "el": "ell/wn-data-ell.tab", "he": "heb/wn-data-heb.tab", "id": "msa/wn-data-ind.tab",
    "it": "ita/wn-data-ita.tab", "nb": "nor/wn-data-nob.tab", "pl": "pol/wn-data-pol.tab",
    "sv": "swe/wn-data-swe.tab", "zh-CN": "cow/wn-data-cmn.tab",
}

ABBREVIATIONS = """
k8s: Kubernetes|PR: pull request|MR: merge request|repo: repository|repos: repositories|env: environment
env var: environment variable|auth: authentication|authn: authentication|authz: authorization|db: database
config: configuration|cfg: configuration|conf: configuration|doc: document|docs: documentation
dir: directory|dirs: directories|msg: message|msgs: messages|img: image|pic: picture|pics: pictures
vid: video|app: application|apps: applications|admin: administrator|acct: account|addr: address
amt: amount|arg: argument|args: arguments|param: parameter|params: parameters|attr: attribute
attrs: attributes|avg: average|bin: binary|bool: boolean|char: character|cmd: command|cmds: commands
col: column|cols: columns|conn: connection|coord: coordinate|coords: coordinates|cred: credential
creds: credentials|ctx: context|cur: current|def: definition|del: delete|dep: dependency
deps: dependencies|desc: description|dest: destination|dst: destination|dev: development
dev environment: development environment|dict: dictionary|diff: difference between versions
dist: distribution|dup: duplicate|elem: element|err: error|errs: errors|evt: event|exec: execute
expr: expression|ext: extension|fn: function|func: function|funcs: functions|gen: generate|hw: hardware
id: identifier|ids: identifiers|idx: index|info: information|init: initialize|inst: instance|int: integer
iter: iterate|lang: language|lib: library|libs: libraries|loc: location|max: maximum|mem: memory
mgmt: management|mgr: manager|min: minimum|misc: miscellaneous|mod: module|nav: navigation|num: number
obj: object|objs: objects|op: operation|ops: operations|opt: option|opts: options|org: organization
orgs: organizations|os: operating system|pkg: package|pkgs: packages|pos: position|prev: previous
prio: priority|proc: process|prod: production|proj: project|pub: publish|pubsub: publish and subscribe
pw: password|pwd: password|qty: quantity|rand: random|rec: record|recv: receive|ref: reference
refs: references|reg: register|rel: release|req: request|res: response|resp: response|ret: return
rm: remove|sched: schedule|sec: security|sel: select|seq: sequence|sig: signature|spec: specification
specs: specifications|src: source|stat: statistic|stats: statistics|str: string|sub: subscription
subs: subscriptions|svc: service|sw: software|sync: synchronize|sys: system|temp: temperature
tmp: temporary|tbl: table|txn: transaction|tx: transaction|txt: text|util: utility|utils: utilities
val: value|var: variable|vars: variables|ver: version|vm: virtual machine|vms: virtual machines
vpc: virtual private network in the cloud|vpn: virtual private network|wf: workflow|wip: work in progress
ci: continuous integration|cd: continuous deployment|ci/cd: build and deployment pipeline
ui: user interface|ux: user experience|cli: command line|gui: graphical user interface|ide: code editor
api: application programming interface|url: web address|uri: web address|link: web address
html: web page|css: style sheet|js: JavaScript|ts: TypeScript|py: Python|rb: Ruby|md: Markdown
csv: comma separated values table|xls: Excel spreadsheet|xlsx: Excel spreadsheet|docx: Word document
pptx: PowerPoint presentation|ppt: PowerPoint presentation|pdf: portable document|png: image file
jpg: image file|jpeg: image file|gif: animated image|mp3: audio file|mp4: video file|wav: audio file
zip: compressed archive|tar: archive of files|ssl: certificate for encrypted connections
tls: encrypted connection certificate|cert: certificate|certs: certificates|dns: domain name records
ip: internet address|nic: network interface|lb: load balancer|fw: firewall|acl: access control list
iam: identity and access management|rbac: role based access control|sso: single sign-on
mfa: multi-factor authentication|2fa: two-factor authentication|otp: one-time password
oauth: authorization with tokens|jwt: access token|pat: personal access token|ssh: secure shell
ftp: file transfer|smtp: sending mail|imap: reading mail|cron: scheduled job|regex: regular expression
sql: database query|ddl: table definition statements|fk: foreign key|pk: primary key
orm: mapping of objects to database tables|etl: extract, transform and load data|bi: business intelligence
crm: customer relationship management|erp: enterprise resource planning|cms: content management
hr: human resources|hris: employee records|kpi: key performance indicator|okr: objectives and results
roi: return on investment|eod: end of day|eta: estimated time of arrival|asap: as soon as possible
fyi: for your information|rsvp: reply to an invitation|dm: direct message|dms: direct messages
sms: text message|mms: picture message|im: instant message|cc: carbon copy|bcc: blind carbon copy
cal: calendar|appt: appointment|mtg: meeting|1:1: one-on-one meeting|pto: paid time off|ooo: out of office
gcal: Google Calendar|gdrive: Google Drive|gsheet: Google spreadsheet|gh: GitHub|gl: GitLab|bb: Bitbucket
pg: PostgreSQL|postgres: PostgreSQL|mongo: MongoDB|es: Elasticsearch|tf: Terraform|gha: GitHub Actions
ec2: virtual server|s3: object storage bucket|lambda: serverless function|rds: managed database
vcs: version control|sha: commit hash|oss: open source software|poc: proof of concept|qa: quality assurance
rca: root cause analysis|slo: service level objective|sla: service level agreement|mttr: mean time to repair
cpu: processor|gpu: graphics processor|ram: memory|ssd: solid state drive|hdd: hard disk|usb: serial bus device
tv: television|ac: air conditioning|temp sensor: thermometer|iot: connected devices|qr: two-dimensional barcode
geo: geographic location|lat: latitude|lng: longitude|lon: longitude|lat/lng: coordinates|poi: point of interest
tz: time zone|utc: universal time|fx: foreign exchange rate|forex: currency exchange|btc: Bitcoin|eth: Ethereum
nft: digital collectible|ipo: stock market launch|etf: exchange traded fund|p&l: profit and loss
vat: value added tax|po: purchase order|sku: product stock number|upc: product barcode|isbn: book number
doi: identifier of a scientific paper|ocr: recognize text in images|tts: text to speech|stt: speech to text
asr: speech recognition|nlp: natural language processing|llm: large language model|ai: artificial intelligence
ml: machine learning|rag: retrieval augmented generation|kb: knowledge base|faq: frequently asked questions
toc: table of contents|wysiwyg: visual editor|dom: structure of a web page|e2e: end-to-end test|seo: search engine optimization
"""

VERBS = """
create add new make open insert|delete remove erase destroy drop discard|list show enumerate get all view all
fetch read get retrieve load pull|update edit modify change patch alter|send post publish message deliver
start run launch execute trigger begin|stop kill terminate end halt abort|cancel revoke call off withdraw
search find look up query seek|filter narrow select where|sort order arrange rank|count tally number of how many
copy duplicate clone replicate|move transfer relocate shift|rename retitle change name|save store persist keep write
upload attach put import file|download export get file save locally|import ingest bring in load from
export dump extract out save as|convert transform turn into translate format|translate localize render in another language
merge combine join consolidate unite|split divide separate break up|compare diff contrast find differences
check verify validate test confirm|inspect examine describe show details|describe explain give details about
summarize condense recap shorten tldr|analyze examine study evaluate|evaluate assess score rate grade
calculate compute work out figure out|estimate approximate predict forecast|predict forecast project
generate produce create make build|build compile assemble construct|deploy release roll out ship publish
rollback revert undo restore previous version|restore recover bring back undelete|backup snapshot save a copy
archive put away shelve store|unarchive restore from archive reopen|close resolve finish complete mark done
reopen open again restart|complete finish mark as done check off|assign give allocate hand to delegate
unassign remove assignee take away|approve accept authorize sign off|reject decline deny refuse
review look over give feedback inspect|comment reply respond add a note|reply answer respond
forward pass on send to|mention tag notify someone|notify alert inform tell|remind set a reminder alert later
schedule plan book set up arrange|reschedule move postpone change the time|invite add attendee ask to join
join enter become member|leave exit quit a group|subscribe follow sign up for|unsubscribe unfollow opt out
follow watch track keep an eye on|unfollow stop following unwatch|like favorite star upvote heart
unlike unfavorite unstar remove like|bookmark save for later pin|pin stick to top highlight|unpin remove from top
share give access send link|unshare revoke access stop sharing|grant allow permit give permission
revoke take away permission withdraw access|block ban blacklist|unblock unban allow again|mute silence turn off sound
unmute turn sound back on|hide conceal make invisible|show display reveal present|display show render view
open launch view|close shut|lock secure freeze|unlock release unfreeze|enable turn on activate switch on
disable turn off deactivate switch off|toggle switch flip|activate enable start using|deactivate disable suspend
suspend pause hold|resume continue unpause|pause suspend hold|play start playback listen|skip next jump over
rewind go back previous|record capture tape|capture take grab screenshot|take screenshot capture the screen
screenshot picture of the page|scan read detect look through|detect identify recognize spot|recognize identify detect
identify determine find out which|extract pull out parse get from|parse interpret read structure of
scrape extract from a web page crawl|crawl visit pages of a site|browse navigate visit go to page
navigate go to open url visit|click press tap select|type enter fill in text|fill complete a form enter
submit send a form hand in|scroll move down the page|hover move the mouse over|drag move with the mouse
select choose pick|choose pick select|set assign put configure|configure set up adjust settings
setup install configure prepare|install add set up package|uninstall remove package|upgrade update to newer version
downgrade go back to older version|reset clear restore defaults|clear empty wipe|empty clear out purge
purge clear delete permanently|clean tidy remove unused|refresh reload renew|reload refresh load again
renew extend prolong|extend lengthen prolong|reduce shrink decrease lower|increase raise grow turn up
decrease lower reduce turn down|resize scale change dimensions|crop cut trim|trim cut shorten|rotate turn spin
flip mirror reverse|zoom magnify enlarge|compress zip shrink file|decompress unzip extract archive|unzip extract decompress
encrypt encode securely protect|decrypt decode unlock|encode convert to|decode convert from|hash digest checksum
sign add signature|authenticate log in sign in|login sign in authenticate|logout sign out log off
register sign up create account|verify confirm check identity|connect link attach pair|disconnect unlink detach
link connect associate relate|unlink disconnect dissociate|attach add file bind|detach remove unbind|mount attach a volume
unmount detach a volume|bind attach associate|map match associate|match pair find corresponding|group cluster put together
ungroup separate|tag label categorize mark|untag remove label|label tag mark annotate|categorize classify sort into groups
classify categorize label|annotate mark up add notes|highlight emphasize mark|draw sketch paint|plot chart graph draw
chart plot graph visualize|visualize chart display graphically|render draw produce image|print output to paper
preview look before draft view|draft compose write|compose write draft|write author create text|rewrite rephrase reword
correct fix proofread|fix repair solve correct|repair fix mend|debug find the bug troubleshoot|troubleshoot diagnose solve problem
diagnose find the cause troubleshoot|investigate look into find the cause|monitor watch observe keep track of
observe watch monitor|track follow monitor|trace follow path|log record write down|audit review history inspect
measure gauge determine size|benchmark measure performance|profile measure where time is spent|test try check run tests
try attempt test|simulate imitate model|mock fake stub|train fit teach a model|infer predict run a model
ask question query inquire|answer reply respond|chat talk converse|call phone ring dial|hang up end call
meet get together have a meeting|pay settle make a payment|charge bill take payment|bill invoice charge
refund return money reimburse|transfer send money move|deposit put money in|withdraw take money out|buy purchase order
sell offer for sale trade|order buy request|return send back|ship send deliver dispatch|deliver bring ship
track package follow shipment where is my parcel|book reserve make a reservation|reserve book hold|check in register arrival
check out leave pay|rent hire lease|donate give contribute|vote cast ballot poll|rate review give stars
recommend suggest advise|suggest propose recommend|sync synchronize keep the same|mirror replicate copy
push upload commits send to remote|pull fetch and merge get latest|commit record changes save to repository
checkout switch branch|branch create a line of development|fork copy a repository|rebase replay commits
stash put changes aside|squash combine commits|cherry-pick apply a single commit|bisect find the commit that broke it
lint check code style|format prettify reformat|refactor restructure improve code|compile build translate code
scale change number of replicas resize|provision allocate set up resources|spin up start an instance create server
tear down destroy infrastructure|drain evict pods from node|cordon mark node unschedulable|expose make reachable publish port
ping check whether reachable|resolve look up address|route direct forward|proxy forward requests
cache keep for quick access|invalidate expire clear cache|index make searchable|vacuum reclaim space|migrate move upgrade schema
seed fill with initial data|truncate remove all rows|upsert insert or update|aggregate sum up group|join combine tables
"""

# Verbs that stand for each other in the names of tools, whichever of them is asked for.
ALIKE = """
create add new make insert|delete remove erase destroy drop|list show enumerate display|fetch read get retrieve load
update edit modify change patch alter|send post publish message|start run launch execute trigger invoke begin
stop kill terminate end halt|cancel abort revoke|search find query lookup locate|copy duplicate clone replicate
move transfer relocate|save store persist write|merge combine join unite|split divide separate|compare diff contrast
check verify validate confirm test|inspect examine describe view|summarize condense recap|calculate compute evaluate
generate produce create build|deploy release publish ship|rollback revert undo restore|restore recover undelete
backup snapshot archive|close resolve complete finish|assign allocate delegate|approve accept authorize allow
reject decline deny refuse|reply answer respond comment|notify alert inform warn|schedule plan book arrange
subscribe follow watch|bookmark favorite star|grant allow permit|block ban blacklist|enable activate|disable deactivate
toggle switch flip|pause suspend hold|resume continue unpause|detect identify recognize|extract parse scrape
navigate browse visit goto|click press tap|select choose pick|configure setup adjust|install setup add|reset clear wipe
refresh reload renew|resize scale|compress zip archive|decompress unzip extract|login authenticate signin
register signup enroll|connect link attach|disconnect unlink detach|tag label mark annotate|categorize classify group
plot chart graph visualize draw|compose draft write|fix repair correct|monitor observe watch track|log record
call dial phone|pay charge bill|buy purchase order|ship dispatch deliver|book reserve|recommend suggest advise
upload attach import|download export dump|convert transform translate|rename retitle|filter narrow|sort order rank
"""


def wordnet():
    """WordNet 3.0: synsets by part and offset, and how often each sense was counted."""
    archive = npm("WNdb", "3.0.1") / "package/WNdb-3.0.tar.gz"
    synsets, senses = {}, defaultdict(list)
    with tarfile.open(archive) as files:
        names = {name.rsplit("/", 1)[-1]: name for name in files.getnames()}
        text = lambda name: files.extractfile(names[name]).read().decode("latin-1").splitlines()
        for part, name in PARTS.items():
            for line in text(f"data.{name}"):
                if line.startswith(" "):
                    continue
                data, gloss = line.split(" | ", 1)
                data = data.split()
                words = int(data[3], 16)
                lemmas = [re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in data[4:4 + 2 * words:2]]
                at = 4 + 2 * words
                pointers = [tuple(data[at + 1 + 4 * i:at + 5 + 4 * i]) for i in range(int(data[at]))]
                synsets[part, data[0]] = {"file": data[1], "lemmas": lemmas, "gloss": gloss, "to": pointers}
        for line in text("index.sense"):
            key, offset, number, count = line.split()
            word, rest = key.split("%")
            part = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}[rest[0]]
            senses[part, offset].append((word.replace("_", " "), int(number), int(count)))
    # A word that definitions use is a common one, though it may not have been counted.
    used = Counter(word for synset in synsets.values() for word in set(re.findall(r"[a-z]+", synset["gloss"])))
    for key, synset in synsets.items():
        known = {word: (number, count) for word, number, count in senses[key]}
        common = []
        for lemma in synset["lemmas"]:
            number, count = known.get(lemma.lower(), (99, 0))
            rare = synset["file"] in RARE_FILES or used[lemma] < USED
            if number <= SENSES and (count or (number == 1 and not rare)):
                common.append((-count, number, lemma))
        synset["common"] = [lemma for _, _, lemma in sorted(common)]
        synset["count"] = max((count for _, _, count in senses[key]), default=0)
    return {key: synset for key, synset in synsets.items() if synset["common"]}


def glosses(text: str) -> tuple[str, list[str]]:
    """The definition and the examples of a gloss."""
    examples = re.findall(r'"([^"]+)"', text)
    return re.sub(r"^\([^)]*\)\s*", "", text.split('; "')[0].split('"')[0].strip(" ;:")), examples


def english(synsets: dict):
    """Synonyms, definitions, examples, and words that WordNet relates."""
    for key, synset in synsets.items():
        words = synset["common"]
        definition, examples = glosses(synset["gloss"])
        for a, b in combinations(words[:5], 2):
            yield pair(a, b, "en")
        for word in words[:3]:
            yield pair(word, definition, "en")
        for example in examples[:2]:
            yield pair(example, definition, "en", weak=True)
        for symbol, offset, part, ends in synset["to"]:
            part = "a" if part == "s" else part
            other = synsets.get((part, offset))
            if not other:
                continue
            if symbol == "+":
                ours, theirs = int(ends[:2], 16) - 1, int(ends[2:], 16) - 1
                if synset["lemmas"][ours] in words and other["lemmas"][theirs] in other["common"]:
                    yield pair(synset["lemmas"][ours], other["lemmas"][theirs], "en")
            elif symbol in ("$", "&"):
                yield pair(words[0], other["common"][0], "en")
            elif symbol == "@" and key[0] in "nv":
                yield pair(words[0], other["common"][0], "en", weak=True)


def foreign(synsets: dict):
    """Words of other languages beside the English ones of the same synset."""
    root = github("omwn/omw-data", "f75be19ec590da12a7a5665e361690b5badb7a25",
                  *(f"wns/{path}" for path in OPEN_WORDNETS.values()))
    for lang, path in sorted(OPEN_WORDNETS.items()):
        words = defaultdict(list)
        for line in (root / "wns" / path).read_text("utf-8").splitlines():
            cells = line.split("\t")
            if len(cells) == 3 and cells[1].endswith("lemma"):
                offset, part = cells[0].split("-")
                word = cells[2].replace("_", " ").replace("+", "")
                words["a" if part == "s" else part, offset].append(word.split("|")[0])
        meanings = defaultdict(list)
        for key, lemmas in sorted(words.items()):
            if key in synsets:
                for lemma in lemmas[:6]:
                    meanings[lemma].append(synsets[key])
        for lemma, found in meanings.items():
            for synset in sorted(found, key=lambda synset: -synset["count"])[:SENSES]:
                common = synset["common"]
                yield pair(lemma, common[0], lang)
                if len(common) > 1:
                    yield pair(lemma, " ".join(common[:4]), lang)


def emoji():
    """Names of emoji beside their keywords."""
    signs = load(npm("cldr-annotations-full", "48.2.0") / "package/annotations/en/annotations.json")
    for told in signs["annotations"]["annotations"].values():
        if "tts" in told:
            name = told["tts"][0]
            yield pair(name, " ".join(told.get("default", ())), "en")
            for word in told.get("default", ()):
                yield pair(word, name, "en", weak=True)


def software():
    """Abbreviations and the verbs of tools. A group of verbs begins with the verb it explains."""
    for entry in re.split(r"[|\n]", ABBREVIATIONS.strip()):
        short, long = re.split(r": (?=\S)", entry, maxsplit=1)
        yield {"kind": "pair", "a": short, "b": long, "lang": "en"}
    for entry in re.split(r"[|\n]", VERBS.strip()):
        head, _, rest = entry.partition(" ")
        yield pair(head, rest, "en")
    for entry in re.split(r"[|\n]", ALIKE.strip()):
        for a, b in combinations(entry.split(), 2):
            yield pair(a, b, "en")


def main() -> None:
    synsets = wordnet()
    rows = []
    for source in (english(synsets), foreign(synsets), emoji(), software()):
        found = [row for row in source if row]
        print(f"{source.__name__}: {len(found)} pairs", file=sys.stderr)
        rows += found
    write("meaning", rows)
    print(dict(Counter(row["lang"] for row in rows).most_common()), file=sys.stderr)


if __name__ == "__main__":
    main()
