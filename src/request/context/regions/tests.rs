//! The order of what `ibex` puts in, whatever the order of the calls.

use bytes::Bytes;

use super::{
    Class, DirectiveText, FRAMING, Framing, PlatformPolicy, RecallText, RegionA, RegionB, Section,
    SessionLine, SnapshotText, StateText, head, session_line,
};
use crate::openai::edits::json_inner;

#[test]
fn a_section_has_the_order_of_the_classes_whatever_the_order_of_the_calls() {
    let mut section = Section::<RegionA>::default();
    section
        .put(&SnapshotText::snapshot(["snapshot".into()]))
        .put(&DirectiveText::directive(["directive".into()]))
        .put(&SessionLine::session_line(["line".into()]))
        .put(&Framing::framing(["framing".into()]))
        .put(&PlatformPolicy::platform_policy(["policy".into()]));
    assert_eq!(
        section.joined(),
        r"framing\n\npolicy\n\ndirective\n\nline\n\nsnapshot"
    );
    let mut block = Section::<RegionB>::default();
    block
        .put(&StateText::working_state(["state".into()]))
        .put(&RecallText::recall(["re".into(), "call".into()]));
    assert_eq!(block.joined(), r"recall\n\nstate");
}

#[test]
fn items_of_one_class_keep_the_order_of_the_calls() {
    let mut section = Section::<RegionB>::default();
    section
        .put(&RecallText::recall(["one".into()]))
        .put(&StateText::working_state(["state".into()]))
        .put(&RecallText::recall(["two".into()]));
    assert_eq!(section.joined(), r"one\n\ntwo\n\nstate");
}

#[test]
fn an_empty_item_leaves_no_trace() {
    let mut section = Section::<RegionA>::default();
    section
        .put(&PlatformPolicy::platform_policy(["".into()]))
        .put(&SessionLine::session_line(["line".into()]))
        .put(&SnapshotText::snapshot([Bytes::new(), Bytes::new()]));
    assert_eq!(section.pieces(), ["line"]);
    assert!(Section::<RegionB>::default().pieces().is_empty());
}

#[test]
fn the_head_is_framing_then_policy_then_directive() {
    let framing = json_inner(FRAMING);
    assert_eq!(head("", None), framing);
    assert_eq!(
        head("", Some("Be \"brief\".\n")),
        format!(r#"{framing}\n\nBe \"brief\"."#)
    );
    assert_eq!(
        head(" No secrets.\n", Some("Be brief.")),
        format!(r"{framing}\n\nNo secrets.\n\nBe brief.")
    );
    assert_eq!(
        head("No secrets.", Some(" ")),
        format!(r"{framing}\n\nNo secrets.")
    );
    assert_eq!(session_line("abc"), "This session's nonce: abc");
}

#[test]
fn every_class_of_the_prefix_comes_before_every_class_of_the_body() {
    assert!(Class::ALL.is_sorted());
    assert!(Class::ALL.is_sorted_by_key(|class| !class.in_prefix()));
    assert_eq!(Class::ALL.last(), Some(&Class::CurrentUser));
    let names = Class::ALL.map(Class::name);
    assert_eq!(names[..3], ["framing", "platform_policy", "directive"]);
    assert_eq!(names[3..6], ["client_system", "session_line", "snapshot"]);
}
