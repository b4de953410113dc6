//! MEM-15: a text is found in whatever script it is written, by a part of it too, and by its code words.

use serde_json::json;

use super::{create, search, service};

#[tokio::test]
async fn texts_without_spaces_with_marks_and_with_glued_words_are_found() {
    let app = service().await;
    let client = app.client();
    // What is asked, and the text that answers; each among all the others.
    let pairs = [
        ("凧あげ", "昨日は川べりで凧あげをした"),
        ("钥匙", "备用钥匙放在蓝色抽屉里"),
        ("도자기", "주말마다 도자기를 굽는다"),
        ("กระต่าย", "ฉันเลี้ยงกระต่าย"),
        ("lumo", "升级lumo-x9后变慢"),
        ("strasse", "Die Straße in Köln ist gesperrt."),
        ("izmir", "İzmir is where the workshop was."),
        ("كتاب", "الكِتَابُ على الرَّفّ"),
        ("Ковёр", "Новый ковер лежит в коридоре."),
        ("naive", "The naïve plan failed."),
    ];
    let mut stored = Vec::new();
    for (_, text) in pairs {
        stored.push(create(&client, &json!({"content": text})).await);
    }
    for ((query, text), id) in pairs.iter().zip(&stored) {
        let found = search(&client, query).await;
        assert_eq!(found.first(), Some(id), "{query} finds {text}");
    }
}
