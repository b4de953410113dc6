//! The table of context words: which words speak for a candidate and which against it.

use super::context::{ANNOUNCED, CARD, IP, LOOSE, MAIL, PHONE, SSN, TRADE, Topic};

/// Words with the topics they speak for and against.
pub(super) struct Words {
    /// Separated by `, `. A trailing `*` lets the word go on, without it the word ends there.
    pub(super) words: &'static str,
    pub(super) plus: Topic,
    pub(super) minus: Topic,
    /// Whether the words mean little else.
    pub(super) strong: bool,
}

/// Every list.
pub(super) static TABLE: &[Words] = &[
    Words {
        words: PHONE_ANNOUNCED,
        plus: PHONE | ANNOUNCED,
        minus: CARD | SSN,
        strong: true,
    },
    Words {
        words: PHONE_STRONG,
        plus: PHONE,
        minus: CARD | SSN,
        strong: true,
    },
    Words {
        words: PHONE_WEAK,
        plus: PHONE,
        minus: 0,
        strong: false,
    },
    Words {
        words: CARD_WORDS,
        plus: CARD,
        minus: PHONE,
        strong: true,
    },
    Words {
        words: SSN_WORDS,
        plus: SSN,
        minus: PHONE | CARD,
        strong: true,
    },
    Words {
        words: IP_WORDS,
        plus: IP,
        minus: 0,
        strong: true,
    },
    Words {
        words: IP_WEAK,
        plus: IP,
        minus: 0,
        strong: false,
    },
    Words {
        words: VERSION_WORDS,
        plus: 0,
        minus: IP | PHONE | CARD | SSN,
        strong: true,
    },
    Words {
        words: MAIL_WORDS,
        plus: MAIL,
        minus: 0,
        strong: true,
    },
    Words {
        words: SHELL_WORDS,
        plus: IP,
        minus: MAIL,
        strong: true,
    },
    Words {
        words: IDENTIFIER_WORDS,
        plus: 0,
        minus: PHONE | CARD | SSN,
        strong: true,
    },
    Words {
        words: AMOUNT_WORDS,
        plus: 0,
        minus: LOOSE | TRADE,
        strong: true,
    },
    Words {
        words: LOOSE_WORDS,
        plus: 0,
        minus: LOOSE,
        strong: true,
    },
    Words {
        words: NAMES,
        plus: 0,
        minus: 0,
        strong: true,
    },
];

/// Words that announce a number: the digits after them are it.
static PHONE_ANNOUNCED: &str = "my number, her number, his number, their number, new number, old number, mobile no, \
    phone number, telephone number, phonenumber, phone no, tel no, mobile number, text me, \
    texted, call me, ring me, reach me, reach us, reached at, reach her, reach him, \
    handynummer, mobilnummer, rufnummer, rückrufnummer, telefoonnummer, numer tel, 電話號碼, \
    callback, voicemail, msisdn, phone numbers, cell number, cell phone number, fax number, \
    contact number, whatsapp number, call him, call her, call us, call them, text him, \
    text her, telefonnummer*, telefonnr, ruf mich an, numéro de téléphone, numéro de portable, \
    número de teléfono, número de móvil, numero di telefono, numero di cellulare, \
    número de telefone, número de celular, 電話番号*, 携帯番号*, 电话号码*, 手机号*, 手機號*, 联系电话*, 전화번호*, \
    휴대폰 번호*, номер телефона*, फ़ोन नंबर*, फोन नंबर*, मोबाइल नंबर*";

static PHONE_STRONG: &str = "ph, mob, telnr, tel nr, handynr, cel, phone, telephone, tel, mobile, cell, cellphone*, \
    landline, fax, whatsapp, sms, dial, dialled, hotline, call, called, calling, calls from, \
    phoned, telefon*, handy, mobil, anrufen, ruf, rufen, festnetz*, durchwahl, erreichbar, \
    rückruf*, zurückrufen, téléphone*, tél, portable, appeler, appelez*, appelle, appelle-moi, \
    rappeler, rappelez*, joignable, joindre, fixe, teléfono*, telefono*, tfno, móvil, movil, \
    llamar*, llame, llámame, llama, llámanos, fijo, cellulare, cell., chiamare, chiama, \
    chiamami, chiamate, recapito, telefoon*, mobiel, bellen, bel, gebeld, bereikbaar, \
    telefone*, celular, ligar, ligue, liga, zap, telemóvel, 電話*, 携帯*, ケータイ, お電話, ファックス, 连絡先, \
    連絡先, 电话*, 手机*, 手機, 致电, 拨打, 座机, 来电, फ़ोन*, फोन*, मोबाइल*, कॉल*, 전화*, 휴대폰*, 연락처, телефон*, \
    Телефон*, тел, Тел, моб, позвони*, звони*, Звони*, telefonu, zadzwoń, komórka, ringa, \
    mobilen, cep tel*, gsm, natel";

static PHONE_WEAK: &str = "contact, number is, number, nummer, numéro, número, numero, call-back, emergency, kontakt, \
    contacto, contatto, contato, 番号, 号码, text, signal, telegram, reach, ring, kontaktnummer, \
    संपर्क, नंबर, ask for, viber, imessage, facetime, home, office, desk, extension, ext, \
    plumber, doctor, dentist";

static CARD_WORDS: &str = "card, cards, card number, credit, debit, visa, mastercard, amex, american express, \
    discover, maestro, diners, jcb, unionpay, cvv, cvc, pan, exp, expires, expiry, \
    kreditkarte*, karte, kartennummer, carte, carte bancaire, cb, tarjeta*, carta, carta di \
    credito, creditcard, kaart, cartão, cartao, カード*, クレジット*, 信用卡*, 卡号*, 银行卡*, कार्ड, 카드, \
    карт*, karta, gültig bis, payment method, kort";

static SSN_WORDS: &str = "ssn, ssns, ss#, social security*, social security card, social security number, \
    social-security, social, soc sec, tax id, taxpayer, taxpayer id, tax id number, ss number, \
    w-2, w-9, 1099, itin, tin, seguro social, irs";

static IP_WORDS: &str = "ip, ips, ipv4, ipv6, ip-adresse, adresse ip, ip address, host, server, login, logged in, \
    ping, traceroute, firewall, gateway, subnet, vpn, remote_addr, x-forwarded-for, forwarded, \
    blocked, banned, router, dns, vps, listen*, nginx, droplet, 地址, アドレス, dirección ip, \
    indirizzo ip, endereço ip, сервер, serveur, servidor, rdp";

static IP_WEAK: &str =
    "address, client, from, connect*, source, src, dst, instance, origin, adresse";

static VERSION_WORDS: &str = "version*, release*, build, firmware, kernel, driver, sdk, upgrade*, downgrade*, changelog, \
    chapter, section, clause, oid, assembly, revision, rev, ver, versión, versione, versie, \
    versão, バージョン, 版本, версия, patch, bump*, chrome, kapitel, abschnitt, package, nuget, \
    installed, update to, updated to";

static MAIL_WORDS: &str = "email*, e-mail*, mail, mailto, mails, correo, courriel, 邮箱, メール, 邮件, write to, почта, \
    adresse mail, inbox";

static SHELL_WORDS: &str = "ssh, scp, rsync, sftp, user@host, git clone, remote";

static IDENTIFIER_WORDS: &str = "nhs number, meeting id, passport, order number, ticket number, invoice number, tracking number, reference number, item \
    number, customer id, user id, order, orders, order no, ticket, tickets, isbn, issn, ean, \
    upc, gtin, asin, doi, sku, commit, uuid, guid, part, part no, part number, invoice*, \
    serial, serial no, serial number, epoch, timestamp*, unix, tracking*, parcel, case, case \
    number, ref, reference*, model, id, ids, _id, row, rows, line, lines, page, lat, lon, lng, \
    latitude, longitude, coordinates, coords, pi, hash, checksum, port, seed, offset, bytes, \
    size, account number, imei, batch, lot, item, items, article, articles, product, product code, catalog*, catalogue*, claim number, claim no, claim id, \
    receipt*, voucher*, coupon*, docket, rma, purchase order, work order, po number, quote number, permit number, \
    license number, licence number, registration number, certificate number, contract number, call number, barcode, shipment, booking, confirmation, \
    transaction, population, price, total, amount, revenue, score, snowflake, millis, ms, job, \
    run, pid, bug, issue, asset, patent, nonce, block, zip, plz, customer number, member, \
    membership, policy number, flight, stack, depth, function, vat, tax number, bestellung, \
    bestellnummer, bestellnr, rechnung*, kundennummer, artikel*, auftrag*, vorgang*, \
    aktenzeichen, sendung*, vertragsnummer, seriennummer, commande, facture, colis, référence, \
    siret, siren, pedido*, factura, envío, ordine, fattura, codice, partita iva, bestelling, \
    bestelnummer, factuur, kvk, fatura, nota fiscal, cnpj, cpf, nif, 注文*, 伝票, 請求書, 订单*, 单号, \
    发票, 编号, 订单号, ऑर्डर, 주문*, заказ*, Заказ*, zamówienie, faktura, sipariş, abn, acn";

/// Amounts, and numbers that are never a person's.
static AMOUNT_WORDS: &str = "units, pieces, pcs, copies, shipments, sales figures, sold, stock, warranty, claim, claims, \
    eur, usd, gbp, chf, vnd, rub, inr, jpy, cny, pln, czk, huf, krw, idr, brl, mxn, cost*, prix, precio*, prezzo*, \
    preço*, preis*, kostet*, kosten, coûte*, cuesta*, costa, costano, цена, стоит, 価格, 价格, 售价, 销量, 가격";

/// What else digits without a form of their own count or name, beside a word for phones.
static LOOSE_WORDS: &str = "account, account no, acct, policy, contract, licence, license, permit, registration, form, \
    quote, statement, bill, bills, battery, capacity, storage, sales, users, subscribers, customers, visitors, \
    traffic, volume, statistics, stats, market, budget, usage, pages, seats, downloads, megapixel*, pixels, worth, \
    paid, pay, fee, fees, salary, years, year, code, codes, number of, phone bill*, phone sales, phone battery, phone plan*, \
    phone price*, phone case*, phone model*, phone contract*, phone usage, phone shipments, phone market, \
    phone cost*, phone tax, mobile sales, mobile users, mobile data, mobile game*, mobile market, mobile traffic, \
    mobile subscribers, mobile phone sales, mobile phone users, cell count*, cell culture*, cell line*, \
    call volume*, call log, call option*, call stack, call duration, call sign, call count, fax usage, \
    text messages, sms messages, telefonrechnung*, telefonkosten, telefonvertrag*, telefonanlage*, telefonbuch*, \
    telefonate*, telefontarif*, facture de téléphone, factura de teléfono, factura del teléfono, \
    bolletta del telefono, conta de telefone, telefonrekening*, téléphones, teléfonos, telefoni, telefones, \
    telefoons, телефонов, телефоны, 电话费*, 電話費*, 手机费*, 话费, 電話代*, 電話料金*, 携帯料金*, 携帯代*, 手机销量*, 手机售价*, \
    手机价格*, 手机电池*, 手机型号*, 手机壳*, 전화요금*, 전화비*, फ़ोन बिल, फोन बिल, फोन की कीमत";

/// Names of products that contain a word for phones, which they are no sign of.
static NAMES: &str = "iphone*, call of duty*, call of cthulhu*, call of juarez*, windows phone*, nothing phone*, \
    handy fact*, handy tip*, handy guide*, handy list*, on call, call it, call for, so-called, mobile legends*, \
    cell phone tower*, solar cell*, fuel cell*, blood cell*, stem cell*, battery cell*, t-cell*";
