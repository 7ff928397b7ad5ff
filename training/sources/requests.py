"""What people ask for, beside the tool that does it.

    python3 training/sources/requests.py

Writes training/.data/requests.jsonl.gz: rows of a tool and the requests it answers, from the training splits of intent
sets, from Home Assistant's sentences and from the tldr pages; and pairs of requests that want the same.
"""

import csv
import json
import re
import sys
from collections import Counter, defaultdict

from download import pypi
from rows import order
from texts import clean, github, language, load, pair, write

SENTENCES = 40  # sentences of one Home Assistant intent in one language
REQUESTS = 150  # requests of one intent of the other sets

# English words for what a Home Assistant sentence leaves open.
OPEN = {"area": ["kitchen", "living room", "bedroom", "garage", "office"], "floor": ["first floor", "basement"],
        "message": ["dinner is ready", "time to leave"], "search_query": ["some jazz", "the Beatles"],
        "timer_name": ["pizza", "laundry"], "shopping_list_item": ["milk", "eggs", "bread"],
        "todo_list_item": ["call the plumber", "water the plants"], "name": ["lamp", "heater", "fan"],
        "zone": ["school", "work"]}

# Intents of clinc/oos-eval, without small talk.
CLINC = """
accept_reservations: Tells whether a restaurant takes reservations
account_blocked: Explains why a bank account is blocked or on hold
alarm: Sets, changes or lists alarms that ring at a given time
application_status: Gets the status of a credit card application
apr: Gets the annual percentage rate of a credit card
balance: Gets the balance of a bank account
bill_balance: Gets the amount owed on a bill
bill_due: Gets the date a bill must be paid by
book_flight: Searches and books flights between two cities on given dates
book_hotel: Finds and reserves a hotel room
calculator: Evaluates an arithmetic expression
calendar: Lists events and appointments in the calendar
calendar_update: Adds, moves or deletes calendar events
calories: Gets the number of calories in a food
cancel: Cancels the current action
cancel_reservation: Cancels a reservation at a restaurant or hotel
car_rental: Rents a car at a place for given dates
card_declined: Explains why a card payment was declined
carry_on: Gets an airline's rules for carry-on baggage
change_accent: Changes the accent of the assistant's voice
change_language: Changes the language setting
change_speed: Changes how fast the assistant speaks
change_user_name: Changes the name the user is called by
change_volume: Turns the speaker volume up or down
confirm_reservation: Confirms that a reservation is booked
cook_time: Tells how long a dish takes to cook
credit_limit: Gets the spending limit of a credit card
credit_limit_change: Requests a higher credit limit
credit_score: Gets the user's credit score
current_location: Gets where the user is now
damaged_card: Reports a damaged bank card
date: Gets today's date or the date of a day
definition: Looks up the meaning of a word in a dictionary
direct_deposit: Sets up direct deposit of a salary into an account
directions: Gets a route and directions to a place
distance: Computes the distance or travel time between two places
exchange_rate: Gets the exchange rate between two currencies
expiration_date: Gets the expiry date of a card
find_phone: Makes the user's phone ring to locate it
flight_status: Gets departure, arrival and delay of a flight
flip_coin: Flips a coin, heads or tails
food_last: Tells how long food stays good before it spoils
freeze_account: Freezes or blocks a bank account
fun_fact: Returns a random interesting fact
gas: Gets the fuel level of the car
gas_type: Tells which type of fuel the car takes
how_busy: Gets how crowded a restaurant is and its waiting time
improve_credit_score: Gives advice on raising a credit score
income: Gets the user's salary or income
ingredient_substitution: Suggests a substitute for an ingredient in a recipe
ingredients_list: Lists the ingredients of a dish
insurance: Gets the details of an insurance policy
insurance_change: Changes an insurance plan
interest_rate: Gets the interest rate of an account
international_fees: Gets the fees for using a card abroad
international_visa: Tells whether a visa is needed to enter a country
jump_start: Explains how to jump start a car battery
last_maintenance: Gets the date of the last car service
lost_luggage: Reports luggage that an airline lost
make_call: Places a phone call to a contact or number
meal_suggestion: Suggests a meal or cuisine to cook
measurement_conversion: Converts a value between units of measurement
meeting_schedule: Lists scheduled meetings
min_payment: Gets the minimum payment due on a bill
mpg: Gets the fuel economy of a car
new_card: Applies for a new credit card
next_holiday: Gets the date of the next public holiday
next_song: Skips to the next track
nutrition_info: Gets nutrition facts of a food
oil_change_how: Explains how to change engine oil
oil_change_when: Gets when the car's oil should be changed
order: Places an order for a product in a shop
order_checks: Orders a checkbook from the bank
order_status: Tracks the delivery status of an order
pay_bill: Pays a bill from a bank account
payday: Gets the date of the next paycheck
pin_change: Changes the PIN of a bank card
play_music: Plays a song, artist or playlist
plug_type: Gets the electrical plug and socket type of a country
pto_balance: Gets how many vacation days are left
pto_request: Requests paid time off
pto_request_status: Gets whether a vacation request was approved
pto_used: Gets how many vacation days were taken
recipe: Finds a recipe for a dish
redeem_rewards: Redeems reward points of a card
reminder: Lists reminders
reminder_update: Creates a reminder to do something
replacement_card_duration: Gets how long a replacement card takes to arrive
report_fraud: Reports a fraudulent transaction
report_lost_card: Reports a bank card as lost or stolen
reset_settings: Resets the device to factory settings
restaurant_reservation: Reserves a table at a restaurant
restaurant_reviews: Gets reviews and ratings of a restaurant
restaurant_suggestion: Recommends restaurants near a place
rewards_balance: Gets the balance of reward points
roll_dice: Rolls dice and returns a random number
rollover_401k: Moves a retirement account to a new provider
routing: Gets the routing number of a bank
schedule_maintenance: Books a car service appointment
schedule_meeting: Schedules a meeting and reserves a room
share_location: Shares the user's location with a contact
shopping_list: Reads the shopping list
shopping_list_update: Adds or removes items of the shopping list
smart_home: Controls lights, locks, thermostat and other devices at home
spelling: Spells a word
spending_history: Reports how much was spent in a category over a period
sync_device: Pairs or synchronizes a phone with the device
taxes: Gets tax rates and amounts owed
tell_joke: Tells a joke
text: Sends a text message to a contact
time: Gets the current time in a city or time zone
timer: Starts a countdown timer
timezone: Gets the time zone of a place
tire_change: Explains how to change a tire
tire_pressure: Gets the air pressure of the tires
todo_list: Reads the list of tasks
todo_list_update: Adds, completes or removes tasks of a to-do list
traffic: Gets traffic conditions on a route
transactions: Lists recent transactions of an account
transfer: Transfers money between two accounts
translate: Translates a phrase into another language
travel_alert: Gets safety warnings for travel to a country
travel_notification: Tells the bank about upcoming travel
travel_suggestion: Suggests sights and activities at a destination
uber: Orders a ride or taxi
update_playlist: Adds a song to a playlist
user_name: Gets the name the user is known by
vaccines: Tells which vaccinations are needed for a country
w2: Gets the yearly wage and tax form
weather: Gets the weather forecast for a place and time
what_can_i_ask_you: Lists what the assistant can do
what_song: Identifies the song that is playing
whisper_mode: Makes the assistant speak quietly
"""

# Intents of PolyAI's banking set.
BANKING = """
Refund_not_showing_up: Tracks a refund that is missing from the statement
activate_my_card: Activates a new bank card
age_limit: Gets the minimum age for opening an account
apple_pay_or_google_pay: Adds a card to a mobile wallet
atm_support: Finds cash machines that accept the card
automatic_top_up: Sets up automatic top-ups of the balance
balance_not_updated_after_bank_transfer: Checks why the balance is unchanged after a bank transfer
balance_not_updated_after_cheque_or_cash_deposit: Checks why a cash or cheque deposit is not in the balance
beneficiary_not_allowed: Explains why a beneficiary cannot be paid
cancel_transfer: Cancels a money transfer
card_about_to_expire: Orders a replacement for a card that expires soon
card_acceptance: Tells where the card is accepted
card_arrival: Tracks the delivery of a new card
card_delivery_estimate: Estimates when a card will be delivered
card_linking: Links an existing card to the account
card_not_working: Troubleshoots a card that does not work
card_payment_fee_charged: Explains a fee charged on a card payment
card_payment_not_recognised: Disputes an unknown card payment
card_payment_wrong_exchange_rate: Disputes the exchange rate of a card payment
card_swallowed: Reports a card kept by a cash machine
cash_withdrawal_charge: Explains a fee for withdrawing cash
cash_withdrawal_not_recognised: Disputes an unknown cash withdrawal
change_pin: Changes the PIN of a card
compromised_card: Blocks a card whose details were stolen
contactless_not_working: Troubleshoots contactless payments
country_support: Lists countries where the service is available
declined_card_payment: Explains why a card payment was declined
declined_cash_withdrawal: Explains why a cash withdrawal was declined
declined_transfer: Explains why a transfer was declined
direct_debit_payment_not_recognised: Disputes an unknown direct debit
disposable_card_limits: Gets the limits of disposable virtual cards
edit_personal_details: Updates name, address and other personal details
exchange_charge: Gets the fee for exchanging currencies
exchange_rate: Gets the exchange rate between currencies
exchange_via_app: Exchanges money between currencies
extra_charge_on_statement: Explains an unexpected charge on the statement
failed_transfer: Finds out why a transfer failed
fiat_currency_support: Lists currencies that can be held and exchanged
get_disposable_virtual_card: Creates a single-use virtual card
get_physical_card: Gets the PIN of a physical card
getting_spare_card: Orders an additional card
getting_virtual_card: Creates a virtual card
lost_or_stolen_card: Reports a card as lost or stolen
lost_or_stolen_phone: Secures the account after a phone was lost
order_physical_card: Orders a physical card
passcode_forgotten: Resets a forgotten passcode
pending_card_payment: Gets the status of a pending card payment
pending_cash_withdrawal: Gets the status of a pending cash withdrawal
pending_top_up: Gets the status of a pending top-up
pending_transfer: Gets the status of a pending transfer
pin_blocked: Unblocks a PIN after too many attempts
receiving_money: Gets account details for receiving money or salary
request_refund: Requests a refund of a purchase
reverted_card_payment?: Explains why a card payment was reversed
supported_cards_and_currencies: Lists cards and currencies accepted for adding money
terminate_account: Closes an account
top_up_by_bank_transfer_charge: Gets the fee for adding money by bank transfer
top_up_by_card_charge: Gets the fee for adding money by card
top_up_by_cash_or_cheque: Adds money by cash or cheque
top_up_failed: Finds out why adding money failed
top_up_limits: Gets the limits for adding money
top_up_reverted: Explains why an added amount was returned
topping_up_by_card: Adds money to the account by card
transaction_charged_twice: Disputes a payment that was charged twice
transfer_fee_charged: Explains the fee of a transfer
transfer_into_account: Transfers money into the account
transfer_not_received_by_recipient: Traces a transfer that did not arrive
transfer_timing: Estimates how long a transfer takes
unable_to_verify_identity: Solves a failed identity check
verify_my_identity: Verifies the user's identity
verify_source_of_funds: Gets where money in the account came from
verify_top_up: Verifies a card used to add money
virtual_card_not_working: Troubleshoots a virtual card
visa_or_mastercard: Chooses between Visa and Mastercard
why_verify_identity: Explains why identity must be verified
wrong_amount_of_cash_received: Reports a cash machine that paid out a wrong amount
wrong_exchange_rate_for_cash_withdrawal: Disputes the exchange rate of a cash withdrawal
"""

# Intents of the Snips set.
SNIPS = """
AddToPlaylist: Adds a song, album or artist to a playlist
BookRestaurant: Reserves a table at a restaurant for a party
GetWeather: Gets the weather forecast for a place and time
PlayMusic: Plays music by artist, album, genre or year
RateBook: Gives a book a rating out of a number of stars
SearchCreativeWork: Finds a book, film, show, game or album by title
SearchScreeningEvent: Finds film showtimes and cinemas
"""

# Intents of xliuhw/NLU-Evaluation-Data, without small talk.
HOME = """
alarm_query: Lists the alarms that are set
alarm_remove: Deletes an alarm
alarm_set: Sets an alarm for a time
audio_volume_down: Lowers the sound volume
audio_volume_mute: Mutes the sound
audio_volume_up: Raises the sound volume
calendar_query: Gets events from the calendar
calendar_remove: Deletes a calendar event
calendar_set: Creates a calendar event
cooking_recipe: Finds recipes and cooking instructions
datetime_convert: Converts a time between time zones
datetime_query: Gets the current date and time
email_addcontact: Adds an address to the contacts
email_query: Checks for new or matching emails
email_querycontact: Looks up the details of a contact
email_sendemail: Sends an email or a reply
general_joke: Tells a joke
iot_cleaning: Starts the robot vacuum cleaner
iot_coffee: Makes coffee with the coffee machine
iot_hue_lightchange: Changes the color of the lights
iot_hue_lightdim: Dims the lights
iot_hue_lightoff: Turns the lights off
iot_hue_lighton: Turns the lights on
iot_hue_lightup: Makes the lights brighter
iot_wemo_off: Turns a smart plug off
iot_wemo_on: Turns a smart plug on
lists_createoradd: Creates a list or adds an item to it
lists_query: Reads the items of a list
lists_remove: Deletes a list or an item of it
music_likeness: Saves that the user likes a song
music_query: Gets title and artist of the current song
music_settings: Sets shuffle, repeat and other options of the player
news_query: Gets the latest news headlines
play_audiobook: Plays an audiobook
play_game: Starts a game
play_music: Plays a song, artist or playlist
play_podcasts: Plays a podcast episode
play_radio: Plays a radio station
qa_currency: Converts an amount between currencies
qa_definition: Looks up the definition of a word or thing
qa_factoid: Answers a factual question
qa_maths: Solves an arithmetic problem
qa_stock: Gets the price of a stock
recommendation_events: Finds events happening near a place
recommendation_locations: Finds shops, restaurants and other places nearby
recommendation_movies: Recommends films and their showtimes
social_post: Posts a message on a social network
social_query: Reads posts and notifications of a social network
takeaway_order: Orders food for delivery
takeaway_query: Gets whether a restaurant delivers and the status of an order
transport_query: Gets train times and directions
transport_taxi: Books a taxi or ride
transport_ticket: Buys a train ticket
transport_traffic: Gets the traffic situation
weather_query: Gets the weather forecast
"""


def intents(text: str) -> dict[str, str]:
    """The description of each intent in a list of them."""
    return dict(line.split(": ", 1) for line in text.strip().splitlines())


def named(intent: str) -> str:
    """A tool name: snake_case of an intent's name."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", intent.strip("?")).lower()


def tools(asked: dict[str, list[str]], about: dict[str, str], server: str, alike: bool = True):
    """A row for each intent with its requests, and neighbours among those as pairs."""
    for intent, description in sorted(about.items()):
        queries = {clean(text) for text in asked[intent]} - {""}
        queries = sorted(sorted(queries, key=lambda text: order({"a": text}))[:REQUESTS])
        if not queries:
            print(f"no requests for {server} {intent}", file=sys.stderr)
            continue
        yield {"kind": "tool", "queries": queries, "server": server, "name": named(intent),
               "description": description, "params": []}
        if not alike:
            continue
        shuffled = sorted(queries, key=lambda text: order({"a": text}))
        for a, b in zip(shuffled[::2], shuffled[1::2]):
            yield pair(a, b, "en", weak=True)


def clinc():
    root = github("clinc/oos-eval", "828f8093932c8fe6ca7936c3d2e52903b1c523de", "data/data_full.json")
    asked = defaultdict(list)
    for text, intent in load(root / "data/data_full.json")["train"]:
        asked[intent].append(text)
    yield from tools(asked, intents(CLINC), "")


def banking():
    root = github("PolyAI-LDN/task-specific-datasets", "57ec275d8078af65b7731c2a98be812d844a6d6b",
                  "banking_data/train.csv")
    asked = defaultdict(list)
    with open(root / "banking_data/train.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            asked[row["category"]].append(row["text"])
    yield from tools(asked, intents(BANKING), "bank")


def snips():
    folder = "2017-06-custom-intent-engines"
    root = github("sonos/nlu-benchmark", "b86ac7f1577868c42158d0dec77db50956046696", f"{folder}/*/train_*_full.json")
    asked = defaultdict(list)
    for path in sorted(root.glob(f"{folder}/*/train_*_full.json")):
        tree = json.loads(path.read_bytes().decode("utf-8", "replace"))
        for intent, rows in tree.items():
            asked[intent] += ["".join(part["text"] for part in row["data"]) for row in rows]
    yield from tools(asked, intents(SNIPS), "", alike=False)


def home():
    folder = ("CrossValidation/autoGeneFromRealAnno/autoGene_2018_03_22-13_01_25_169/CrossValidation"
              "/KFold_1/trainset")
    root = github("xliuhw/NLU-Evaluation-Data", "f6071b496b17d71e6eb43f543af0707f4ff30557", folder)
    asked = defaultdict(list)
    for path in sorted((root / folder).glob("*.csv")):
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter=";"):
                asked[path.stem].append(row["answer_from_anno"])
    yield from tools(asked, intents(HOME), "")


def expand(template: str, rules: dict, lists: dict, seed: str, depth: int = 0) -> str:
    """One sentence of a template: alternatives are chosen by the seed, options are kept half of the time.

    A slot that cannot be filled leaves its braces behind."""
    tick = lambda most, at: int(order({"a": seed, "b": at + depth * 1000})[:8], 16) % most

    def close(text: str, start: int) -> int:
        level, pairs = 0, {"(": ")", "[": "]"}
        opening, closing = text[start], pairs[text[start]]
        for at in range(start, len(text)):
            level += (text[at] == opening) - (text[at] == closing)
            if not level:
                return at
        return len(text)

    def alternatives(text: str) -> list[str]:
        parts, level, part = [], 0, ""
        for c in text:
            level += (c in "([{<") - (c in ")]}>")
            if c == "|" and not level:
                parts.append(part)
                part = ""
            else:
                part += c
        return [*parts, part]

    choices = alternatives(template)
    template = choices[tick(len(choices), 500)].replace(";", " ")
    out, at = "", 0
    while at < len(template):
        c = template[at]
        if c in "([":
            end = close(template, at)
            choices = alternatives(template[at + 1:end])
            if c == "(" or tick(2, at):
                out += expand(choices[tick(len(choices), at + 1)], rules, lists, seed + str(at), depth + 1)
            at = end + 1
        elif c == "<" and ">" in template[at:]:
            end = template.index(">", at)
            if depth < 12:
                out += expand(rules.get(template[at + 1:end], ""), rules, lists, seed + str(at), depth + 1)
            at = end + 1
        elif c == "{" and "}" in template[at:]:
            end = template.index("}", at)
            slot = lists.get(template[at + 1:end].split(":")[0], {})
            values = slot.get("values", [])
            if values:
                value = values[tick(len(values), at)]
                value = value["in"] if isinstance(value, dict) else value
                out += expand(str(value), rules, {}, seed, depth + 1) if depth < 12 else ""
            elif "range" in slot:
                out += str(tick(50, at) + 5)
            else:
                out += "{}"
            at = end + 1
        else:
            out += c
            at += 1
    return out


def home_assistant():
    """Sentences of Home Assistant's voice commands: English ones ask for the tool, others pair with its description."""
    root = pypi("home-assistant-intents", "2026.10.27") / "home_assistant_intents"
    about = {intent: told["description"] for intent, told in load(root / "intents.json").items()}
    for path in sorted((root / "data").glob("*.json")):
        lang = "en" if path.stem == "en" else language(path.stem)
        if not lang or path.stem == "de-CH":
            continue
        tree = load(path)
        for intent, told in sorted(tree["intents"].items()):
            if intent in ("HassNevermind", "HassRespond") or intent not in about:
                continue
            sentences = set()
            for data in told["data"]:
                rules = {**tree.get("expansion_rules", {}), **data.get("expansion_rules", {})}
                lists = {**tree.get("lists", {}), **data.get("lists", {})}
                if lang == "en":
                    lists |= {slot: {"values": words} for slot, words in OPEN.items()}
                for template in data["sentences"]:
                    for take in "abc":
                        text = expand(template, rules, lists, template + take)
                        text = "" if "{" in text else clean(text)
                        if len(text) > 7 or (lang in ("zh-CN", "zh-TW", "ja", "ko") and len(text) > 2):
                            sentences.add(text)
            chosen = sorted(sentences, key=lambda text: order({"a": text}))[:SENTENCES]
            name = named(intent).removeprefix("hass_")
            if lang == "en" and chosen:
                yield {"kind": "tool", "queries": sorted(chosen), "server": "home assistant", "name": name,
                       "description": about[intent], "params": []}
            elif lang != "en":
                for text in chosen:
                    yield pair(text, f"{name.replace('_', ' ')}: {about[intent]}", lang)


def tldr():
    """Commands: what a page's examples do is asked for, the page's summary describes the tool."""
    root = github("tldr-pages/tldr", "08e345f42639f67d99282813247ac670dc6e87cb", "pages", "pages.*")
    for path in sorted((root / "pages").rglob("*.md")):
        if path.name.startswith(("aws", "gcloud", "az-", "az.")):
            continue
        lines = path.read_text("utf-8").splitlines()
        plain = lambda line: clean(re.sub(r"[\[\]]", "", line))
        told = [plain(line[1:]) for line in lines if line.startswith(">")
                and not re.search(r"More information|See also|Note:|alias of", line)]
        asked = sorted({plain(line[1:]) for line in lines if line.startswith("- ")} - {""})
        if told and asked:
            yield {"kind": "tool", "queries": asked, "server": path.parent.name if path.parent.name != "common" else "",
                   "name": lines[0].lstrip("# ").strip(), "description": ". ".join(told), "params": []}


def main() -> None:
    rows = []
    for source in (clinc, banking, snips, home, home_assistant, tldr):
        found = [row for row in source() if row]
        print(f"{source.__name__}: {sum(row['kind'] == 'tool' for row in found)} tools with "
              f"{sum(len(row.get('queries', ())) for row in found)} requests, "
              f"{sum(row['kind'] == 'pair' for row in found)} pairs", file=sys.stderr)
        rows += found
    write("requests", rows)
    print(dict(Counter(row.get("lang", "en") for row in rows).most_common()), file=sys.stderr)


if __name__ == "__main__":
    main()
