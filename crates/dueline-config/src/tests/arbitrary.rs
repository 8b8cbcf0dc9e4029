//! Whatever is typed, the answer is a configuration or an error: never a panic.

use std::time::Duration;

use proptest::prelude::*;
use proptest::string::string_regex;

use crate::layer::Typed;
use crate::{Config, span};

/// Texts that are TOML rather often, with our names in them.
fn tomlish() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("relay"),
        Just("queues"),
        Just("kinds"),
        Just("orders"),
        Just("kafka"),
        Just("lease"),
        Just("properties"),
        Just("tiers"),
        Just("sql"),
        Just("queue"),
        Just("backoff"),
        Just("x"),
        Just("name"),
        Just("max_delay"),
        Just("retention"),
        Just("brokers"),
        Just("\"a.b\""),
    ];
    let path = prop::collection::vec(name, 1..4).prop_map(|parts| parts.join("."));
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("-9223372036854775808".to_owned()),
        Just("true".to_owned()),
        Just("1.5".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("\"99999999999999999d\"".to_owned()),
        Just("\"30s\"".to_owned()),
        Just("[{ name = \"a\", max_delay = \"1s\" }, 7]".to_owned()),
        Just("1979-05-27".to_owned()),
        Just("\"é\u{0}\"".to_owned()),
        Just("\"orders\"".to_owned()),
    ];
    let line = prop_oneof![
        path.clone().prop_map(|path| format!("[{path}]")),
        (path, value).prop_map(|(path, value)| format!("{path} = {value}")),
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_text_is_answered(text in ".{0,200}") {
        let _ = Config::from_toml_str(&text);
    }

    #[test]
    fn any_toml_and_overrides_are_answered(
        text in tomlish(),
        env in prop::collection::vec(
            (string_regex("DUELINE__[A-Z_]{0,30}").expect("valid"), ".{0,20}"), 0..4,
        ),
        overrides in prop::collection::vec(
            prop_oneof![".{0,30}".prop_map(String::from), tomlish()], 0..4,
        ),
    ) {
        if let Ok(mut typed) = Typed::from_toml(&text, "x") {
            typed.add_env(&env);
            typed.add_overrides(&overrides);
            let _ = Config::check(typed);
        }
    }

    #[test]
    fn spans_round_trip(ms in 0..u64::MAX / 2) {
        let duration = Duration::from_millis(ms);
        prop_assert_eq!(span::parse(&span::format(duration)), Some(duration));
    }

    #[test]
    fn any_span_is_answered(text in "[0-9dhms ]{0,40}|.{0,20}") {
        let _ = span::parse(&text);
    }
}
