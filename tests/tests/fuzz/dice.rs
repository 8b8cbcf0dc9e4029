//! Where inputs come from: numbers from a seed, and what such numbers are good for.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

/// Texts that have broken something somewhere.
const NASTY: [&str; 42] = [
    "",
    " ",
    "\0",
    "a\0b",
    "\n",
    "\r\n",
    "\u{1b}[2J",
    "\u{7f}",
    "\u{200b}",
    "\u{202e}abc",
    "\u{feff}",
    "\u{fffd}",
    "\u{10ffff}",
    "é",
    "e\u{301}",
    "ß",
    "İ",
    "👩\u{200d}👩\u{200d}👧",
    "%s%n%p",
    "%00",
    "'; drop table dueline.task; --",
    "' or '1'='1",
    "\"",
    "\\",
    "\\u0000",
    "$$",
    "${x}",
    "$(reboot)",
    "../../etc/passwd",
    "{",
    "}",
    "[]",
    "null",
    "true",
    "NaN",
    "infinity",
    "--help",
    "-",
    "=",
    "a=b=c",
    "9999-12-30T22:00:00.9999999Z",
    "0000-01-01T00:00:00Z",
];

/// Numbers at the edges of the types that they are read into.
const EDGES: [&str; 26] = [
    "0",
    "-0",
    "+1",
    "1",
    "-1",
    "2",
    "32767",
    "32768",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
    "1e9",
    "0x10",
    "1_000",
    "1.5",
    "٣",
    " 1",
    "1 ",
];

/// The source of one input.
pub struct Dice {
    rng: SmallRng,
    shown: Option<String>,
}

impl Dice {
    /// Those of case number `case` of a run with this seed.
    pub fn new(seed: u64, case: u64) -> Self {
        // An odd factor, so that neighbouring cases have nothing in common.
        let own = seed ^ case.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { rng: SmallRng::seed_from_u64(own), shown: None }
    }

    /// The same, writing down what [`Self::show`] is given.
    pub fn showing(mut self) -> Self {
        self.shown = Some(String::new());
        self
    }

    /// Writes down the input, if somebody wants to see it.
    pub fn show(&mut self, input: impl FnOnce() -> String) {
        if let Some(shown) = &mut self.shown {
            *shown = input();
        }
    }

    /// What was written down, within bounds.
    pub fn shown(&self) -> String {
        let text = self.shown.as_deref().unwrap_or_default();
        let short: String = text.chars().take(4_000).collect();
        format!("the input ({} bytes): {short}", text.len())
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        match items.choose(&mut self.rng) {
            Some(item) => item,
            None => panic!("nothing to pick from"),
        }
    }

    /// Up to `max` bytes.
    pub fn bytes(&mut self, max: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.below(max + 1)];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    /// A length: mostly short, now and then up to `max`.
    pub fn length(&mut self, max: usize) -> usize {
        let bits = self.below(max.max(2).ilog2() as usize + 1);
        self.below(max.min(1 << bits).max(1) + 1)
    }

    /// Digits, or something like them.
    pub fn number(&mut self) -> String {
        match self.below(4) {
            0 => (self.bits() as i64).to_string(),
            1 => self.below(100).to_string(),
            _ => (*self.pick(&EDGES)).to_owned(),
        }
    }

    /// A text: nasty, numeric, long, or of any characters.
    pub fn text(&mut self) -> String {
        match self.below(8) {
            0 | 1 => (*self.pick(&NASTY)).to_owned(),
            2 => self.number(),
            3 => {
                let part = (*self.pick(&NASTY)).to_owned();
                let times = self.length(2_000);
                part.repeat(times)
            }
            4 => String::from_utf8_lossy(&self.bytes(60)).into_owned(),
            5 => format!("{}{}", self.pick(&NASTY), self.pick(&NASTY)),
            _ => {
                let length = self.length(80);
                (0..length).map(|_| self.character()).collect()
            }
        }
    }

    /// A text without the character that PostgreSQL has no text for.
    pub fn text_without_nul(&mut self) -> String {
        self.text().replace('\0', "\u{1}")
    }

    fn character(&mut self) -> char {
        let bound = *self.pick(&[0x80, 0x80, 0x80, 0x800, 0x1_0000, 0x11_0000]);
        let code = u32::try_from(self.below(bound)).unwrap_or_default();
        char::from_u32(code).unwrap_or('\u{d7ff}')
    }

    /// Bytes that are a little wrong: flipped, cut, doubled, grown.
    pub fn bend(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.bits() as u8),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                3 if at < bytes.len() => drop(bytes.remove(at)),
                4 => {
                    let part = self.pick(&NASTY).as_bytes().to_vec();
                    bytes.splice(at..at, part);
                }
                _ => {
                    let to = (at + self.length(64)).min(bytes.len());
                    let part = bytes[at..to].to_vec();
                    bytes.splice(at..at, part);
                }
            }
        }
    }

    /// A text that is a little wrong.
    pub fn bent(&mut self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        self.bend(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// JSON, of any shape and mostly right; `max` bounds its bytes, roughly.
    pub fn json(&mut self, max: usize) -> String {
        match self.below(6) {
            0 => {
                let deep = self.length(max / 2);
                format!("{}{}", "[".repeat(deep), "]".repeat(deep))
            }
            1 => {
                let deep = self.length(max / 6);
                format!("{}1{}", "{\"a\":".repeat(deep), "}".repeat(deep))
            }
            2 => {
                let wide = self.length(max / 4);
                format!("[{}1]", "1, ".repeat(wide))
            }
            3 => serde_json::Value::String(self.text()).to_string(),
            4 => {
                let (name, value) = (self.text(), self.text());
                serde_json::json!({ name: value, "n": self.bits(), "f": 1e300 }).to_string()
            }
            _ => {
                let exact = [
                    "null",
                    "1e400",
                    "-0",
                    "1E-400",
                    "\"\\ud800\"",
                    "[1,]",
                    "{\"a\":1,\"a\":2}",
                    "0x1",
                    "",
                ];
                (*self.pick(&exact)).to_owned()
            }
        }
    }
}
