//! Calls of the SQL functions, as clients and operators may make them.

use super::dice::Dice;

/// The types of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Kind,
    Key,
    Keys,
    Instant,
    Instants,
    Span,
    Spans,
    Payload,
    Payloads,
    Headers,
    ManyHeaders,
    Conflict,
    Words,
}

/// A function: its parameters, and how many of them have no default.
#[derive(Clone, Copy)]
struct Function {
    name: &'static str,
    parameters: &'static [(&'static str, Type)],
    required: usize,
}

use Type::{
    Conflict, Headers, Instant, Instants, Key, Keys, Kind, ManyHeaders, Payload, Payloads, Span,
    Spans, Words,
};

const FUNCTIONS: [Function; 8] = [
    Function {
        name: "schedule",
        parameters: &[
            ("kind", Kind),
            ("key", Key),
            ("due_at", Instant),
            ("delay", Span),
            ("event_at", Instant),
            ("payload", Payload),
            ("headers", Headers),
            ("on_conflict", Conflict),
            ("jitter", Span),
        ],
        required: 2,
    },
    Function {
        name: "schedule_many",
        parameters: &[
            ("kind", Kind),
            ("keys", Keys),
            ("due_at", Instants),
            ("delays", Spans),
            ("event_at", Instant),
            ("payloads", Payloads),
            ("headers", ManyHeaders),
            ("on_conflict", Conflict),
            ("jitter", Span),
        ],
        required: 2,
    },
    Function {
        name: "reschedule",
        parameters: &[
            ("kind", Kind),
            ("key", Key),
            ("due_at", Instant),
            ("delay", Span),
            ("event_at", Instant),
            ("payload", Payload),
            ("reason", Words),
        ],
        required: 2,
    },
    Function {
        name: "cancel",
        parameters: &[("kind", Kind), ("key", Key), ("reason", Words)],
        required: 2,
    },
    Function {
        name: "cancel_or_raise",
        parameters: &[("kind", Kind), ("key", Key), ("reason", Words)],
        required: 2,
    },
    Function {
        name: "cancel_many",
        parameters: &[("kind", Kind), ("keys", Keys), ("reason", Words)],
        required: 2,
    },
    Function { name: "get", parameters: &[("kind", Kind), ("key", Key)], required: 2 },
    Function {
        name: "key_hash",
        parameters: &[("queue", Words), ("kind", Kind), ("key", Key)],
        required: 3,
    },
];

/// One call.
pub struct Call {
    /// The function's name.
    pub function: &'static str,
    arguments: Vec<(&'static str, String)>,
}

impl Call {
    /// Any call of any function.
    pub fn of(dice: &mut Dice) -> Self {
        let function = match dice.below(3) {
            0 => &FUNCTIONS[0],
            1 => &FUNCTIONS[1],
            _ => dice.pick(&FUNCTIONS),
        };
        // Most calls are right in most things: otherwise the first wrong one would hide the others.
        let deadline = dice.below(2);
        let mut arguments = Vec::new();
        for (at, (name, kind)) in function.parameters.iter().enumerate() {
            let usual = match name {
                &"due_at" => deadline == 0,
                &"delay" | &"delays" => deadline == 1,
                _ => dice.one_in(3),
            };
            let given = if dice.one_in(20) { !usual } else { usual };
            if at < function.required || given {
                arguments.push((*name, expression(dice, *kind)));
            }
        }
        Self { function: function.name, arguments }
    }

    /// The statement.
    pub fn statement(&self) -> String {
        let named = |(name, value): &(&str, String)| format!("{name} => {value}");
        let arguments: Vec<String> = self.arguments.iter().map(named).collect();
        format!("select * from dueline.{}({})", self.function, arguments.join(", "))
    }

    /// What was given for a parameter.
    pub fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }
}

/// A text as SQL writes it.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\0', "").replace('\'', "''"))
}

fn expression(dice: &mut Dice, kind: Type) -> String {
    match kind {
        Kind => kind_name(dice),
        Key => key(dice),
        Keys => array(dice, "text", key),
        Instant => instant(dice),
        Instants => array(dice, "timestamptz", instant),
        Span => span(dice),
        Spans => array(dice, "interval", span),
        Payload => payload(dice),
        Payloads => array(dice, "jsonb", payload),
        Headers => headers(dice),
        ManyHeaders => array(dice, "jsonb", headers),
        Conflict => {
            let known = ["'keep'", "'keep'", "'reschedule'", "'reschedule'", "'error'"];
            let unknown = ["null", "'KEEP'", "''", "repeat('keep', 1000)"];
            (*if dice.one_in(10) { dice.pick(&unknown) } else { dice.pick(&known) }).to_owned()
        }
        Words => words(dice),
    }
}

fn kind_name(dice: &mut Dice) -> String {
    match dice.below(30) {
        0 => (*dice.pick(&["null", "''", "'close_oder'", "repeat('k', 100000)"])).to_owned(),
        1 => literal(&dice.text()),
        n => (*["'close_order'", "'refund'", "'remind'"].get(n % 3).unwrap_or(&"''")).to_owned(),
    }
}

fn key(dice: &mut Dice) -> String {
    const EDGES: [&str; 8] = [
        "null",
        "''",
        "repeat('x', 512)",
        "repeat('x', 513)",
        "repeat('é', 256)",
        "repeat('é', 257)",
        r"U&'\+01F469\200d'",
        r"E'\\x00\\\\'",
    ];
    match dice.below(24) {
        0 => (*dice.pick(&EDGES)).to_owned(),
        1 => literal(&dice.text()),
        _ => format!("'k{}'", dice.below(250)),
    }
}

fn instant(dice: &mut Dice) -> String {
    const EDGES: [&str; 18] = [
        "'infinity'",
        "'-infinity'",
        "'4713-01-01 BC'",
        "'0001-12-31 BC'",
        "'0001-01-01'",
        "'0001-01-01+15'",
        "'1969-12-31 23:59:59.999999+00'",
        "'epoch'",
        "'8999-12-31 23:59:59.999999+00'",
        "'9000-01-01+00'",
        "'9988-12-31 23:59:59.999999+00'",
        "'9989-01-01+00'",
        "'9999-12-31 23:59:59.9999999+00'",
        "'294276-12-31 23:59:59.999999+00'",
        "'2026-11-30 23:59:00.0000004-12'",
        "'2028-02-29'",
        "'today'",
        "null",
    ];
    if dice.one_in(4) {
        return format!("{}::timestamptz", dice.pick(&EDGES));
    }
    let (sign, n) = (*dice.pick(&["+", "+", "-"]), dice.below(100_000));
    format!("(clock_timestamp() {sign} interval '{n} minutes')")
}

fn span(dice: &mut Dice) -> String {
    const EDGES: [&str; 20] = [
        "0",
        "-1 microsecond",
        "1 microsecond",
        "0.0000001 s",
        "900 years",
        "900 years 1 microsecond",
        "10 years",
        "178956970 years",
        "-178956970 years",
        "2147483647 days",
        "-2147483648 days",
        "2562047788 hours",
        "-2562047788 hours",
        // These count as short, and reach far on their way.
        "1 month -30 days",
        "24000 months -720000 days",
        "2400000 months -72000000 days",
        "10000000 months -300000000 days",
        "70000000 months -2100000000 days",
        "-70000000 months 2100000000 days",
        "-24000 months 720000 days",
    ];
    match dice.below(8) {
        0 => format!("interval '{}'", dice.pick(&EDGES)),
        1 => format!("interval '{} s'", dice.number().replace(['_', '٣'], "")),
        2 if dice.one_in(4) => "null::interval".to_owned(),
        _ => format!("interval '{} s'", dice.below(10_000_000)),
    }
}

fn payload(dice: &mut Dice) -> String {
    const EDGES: [&str; 8] = [
        "null::jsonb",
        "'null'::jsonb",
        "to_jsonb(repeat('x', 8190))",
        "to_jsonb(repeat('x', 8191))",
        "to_jsonb(repeat('é', 4095))",
        "to_jsonb(array_fill(1, array[2700]))",
        "to_jsonb(array_fill(12345678901234567890, array[300]))",
        "(repeat('[', 4000) || repeat(']', 4000))::jsonb",
    ];
    match dice.below(3) {
        0 => format!("{}::jsonb", literal(&dice.json(9_000))),
        1 => (*dice.pick(&EDGES)).to_owned(),
        _ => format!("jsonb_build_object('n', {}, 't', {})", dice.below(99), words(dice)),
    }
}

fn headers(dice: &mut Dice) -> String {
    const EDGES: [&str; 12] = [
        "null::jsonb",
        "'null'::jsonb",
        "'[]'::jsonb",
        "'{}'::jsonb",
        "'\"x\"'::jsonb",
        "'{\"ce_id\": \"1\"}'::jsonb",
        "'{\"CE_x\": \"1\"}'::jsonb",
        "'{\"content-type\": \"x\"}'::jsonb",
        "'{\"n\": 1}'::jsonb",
        "jsonb_build_object('long', repeat('x', 4096))",
        "jsonb_build_object('long', repeat('x', 4097))",
        "jsonb_build_object(repeat('n', 129), 'x')",
    ];
    match dice.below(4) {
        0 => (*dice.pick(&EDGES)).to_owned(),
        1 => {
            let (count, length) = (dice.below(36), *dice.pick(&[1, 100, 512, 4_096]));
            format!(
                "(select jsonb_object_agg('h' || g, repeat('x', {length})) \
                  from generate_series(1, {count}) g)"
            )
        }
        2 => format!("jsonb_build_object({}, {})", words(dice), words(dice)),
        _ => "'{\"traceparent\": \"00-1-2-01\", \"x-team\": \"shop\"}'::jsonb".to_owned(),
    }
}

fn words(dice: &mut Dice) -> String {
    match dice.below(5) {
        0 => "null".to_owned(),
        1 => format!("repeat({}, {})", literal(&dice.text()), dice.length(3_000)),
        _ => literal(&dice.text()),
    }
}

/// An array of such elements: usual, of odd shape, or of the wrong length.
fn array(dice: &mut Dice, of: &str, mut element: impl FnMut(&mut Dice) -> String) -> String {
    let plain = |items: Vec<String>| format!("array[{}]::{of}[]", items.join(", "));
    let n = if dice.one_in(3) { 1 } else { 1 + dice.length(6) };
    let items: Vec<String> = (0..n).map(|_| element(dice)).collect();
    // One element in an array of two or three dimensions is a known fault: see `regressions`.
    let shapes = if of == "text" || n > 1 { 16 } else { 3 };
    match dice.below(shapes) {
        0 => format!("null::{of}[]"),
        1 => format!("'{{}}'::{of}[]"),
        2 => format!("array_fill(null::{of}, array[{n}])"),
        3 => format!("array[[{}]]::{of}[]", items.join(", ")),
        4 => {
            let rows: Vec<String> = items.iter().map(|item| format!("[{item}]")).collect();
            format!("array[{}]::{of}[]", rows.join(", "))
        }
        // Counted from elsewhere than 1.
        5 => format!(
            "array_fill({}::{of}, array[{n}], array[{}])",
            items[0],
            dice.below(9) as i32 - 4
        ),
        6 if of == "text" => {
            format!(
                "(select array_agg('m' || g) from generate_series(1, {}) g)",
                dice.length(3_000)
            )
        }
        7 => format!("array_fill({}::{of}, array[1, {n}, 1], array[2, 0, -3])", items[0]),
        _ => plain(items),
    }
}
