//! Where the scan stands in each lane of this relay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dueline_core::Micros;
use dueline_store::relay::{BEGINNING, Cursor, Round, Span};

use crate::routes::Route;

/// A lane of ours.
#[derive(Debug)]
struct LaneState {
    route: Arc<Route>,
    /// The scan goes on after this alarm.
    head: (Micros, i64),
    /// Everything due before this was found.
    passed: Micros,
    /// The last claim left due work behind.
    behind: bool,
}

/// What a claim told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Whether some lane has more due work.
    pub more: bool,
    /// The longest that a row came after the scan had passed its place.
    pub latest_lag: Option<Duration>,
}

/// The lanes of one incarnation.
#[derive(Debug, Default)]
pub(crate) struct Book {
    lanes: BTreeMap<i32, LaneState>,
    /// The routes of all lanes ever had: what was claimed in a lane is still published after it is
    /// given away. A lane's number never comes to mean another queue or tier.
    routes: BTreeMap<i32, Arc<Route>>,
}

impl Book {
    /// Adds a lane whose previous owner had found everything due before `watermark`.
    pub fn add(&mut self, lane: i32, route: Arc<Route>, watermark: Micros) {
        self.routes.insert(lane, Arc::clone(&route));
        let state =
            LaneState { route, head: (watermark, i64::MIN), passed: watermark, behind: false };
        self.lanes.entry(lane).or_insert(state);
    }

    pub fn remove(&mut self, lane: i32) {
        self.lanes.remove(&lane);
    }

    pub fn clear(&mut self) {
        self.lanes.clear();
    }

    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    pub fn ids(&self) -> Vec<i32> {
        self.lanes.keys().copied().collect()
    }

    pub fn route(&self, lane: i32) -> Option<&Arc<Route>> {
        self.routes.get(&lane)
    }

    /// Where to go on in the lanes that `open` lets through.
    pub fn heads(&self, open: impl Fn(&Route) -> bool) -> Vec<Cursor> {
        self.cursors(open, |state| state.head)
    }

    /// Where a round that looks back by `window` begins: from min(watermark, now) − window. A lane
    /// that has a backlog goes on at its head: to look back there would read what was just claimed,
    /// again and again.
    pub fn starts(
        &self,
        open: impl Fn(&Route) -> bool,
        now: Option<Micros>,
        window: Duration,
    ) -> Vec<Cursor> {
        self.cursors(open, |state| {
            if state.behind {
                return state.head;
            }
            let passed = now.map_or(state.passed, |now| now.min(state.passed));
            (if passed == BEGINNING { BEGINNING } else { passed.minus(window) }, i64::MIN)
        })
    }

    fn cursors(
        &self,
        open: impl Fn(&Route) -> bool,
        at: impl Fn(&LaneState) -> (Micros, i64),
    ) -> Vec<Cursor> {
        let lanes = self.lanes.iter().filter(|(_, state)| open(&state.route));
        lanes
            .map(|(lane, state)| {
                let (at, id) = at(state);
                Cursor { lane: *lane, at, id }
            })
            .collect()
    }

    /// Moves on by what a claim that asked for `asked` brought. `upto` is the latest `next_at` that
    /// the claim could see.
    pub fn apply(&mut self, asked: &[Cursor], round: &Round, upto: Micros) -> Applied {
        let mut per_lane: BTreeMap<i32, (usize, (Micros, i64))> = BTreeMap::new();
        let mut applied = Applied { more: round.lanes_left_out, latest_lag: None };
        for alarm in &round.claimed {
            // Oldest first: the last one seen is the furthest.
            let entry = per_lane.entry(alarm.lane).or_insert((0, (BEGINNING, i64::MIN)));
            *entry = (entry.0 + 1, (alarm.next_at, alarm.id));
            let passed = self.lanes.get(&alarm.lane).map_or(BEGINNING, |state| state.passed);
            if alarm.next_at < passed {
                let lag = round.now.since(alarm.next_at);
                applied.latest_lag = applied.latest_lag.max(Some(lag));
            }
        }
        for cursor in asked {
            let Some(state) = self.lanes.get_mut(&cursor.lane) else { continue };
            match per_lane.get(&cursor.lane) {
                Some((count, last)) if *count >= round.share => {
                    applied.more = true;
                    state.behind = true;
                    state.head = *last;
                    state.passed = state.passed.max(last.0);
                }
                None if round.lanes_left_out => {}
                found => {
                    let last = found.map_or((cursor.at, cursor.id), |(_, last)| *last);
                    state.behind = false;
                    state.head = state.head.max(last);
                    state.passed = state.passed.max(upto);
                }
            }
        }
        applied
    }

    /// Nothing waits before `upto` in any of the asked lanes.
    pub fn nothing_before(&mut self, asked: &[Cursor], upto: Micros) {
        for cursor in asked {
            if let Some(state) = self.lanes.get_mut(&cursor.lane) {
                state.behind = false;
                state.head = state.head.max((cursor.at, cursor.id));
                state.passed = state.passed.max(upto);
            }
        }
    }

    /// An alarm behind the scan waits again: the scan goes back to it.
    pub fn go_back(&mut self, lane: i32, next_at: Micros) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            let before = Micros(next_at.0.saturating_sub(1));
            state.head = state.head.min((before, i64::MAX));
            state.passed = state.passed.min(next_at);
        }
    }

    /// The database's clock went back to `now`.
    pub fn clock_went_back(&mut self, now: Micros) {
        for state in self.lanes.values_mut() {
            state.head = state.head.min((now, i64::MIN));
            state.passed = state.passed.min(now);
        }
    }

    /// Everything due before this was found, in each lane.
    pub fn watermark(&self) -> Option<Micros> {
        self.lanes.values().map(|state| state.passed).min()
    }

    /// What the sweep has to walk: each lane from its beginning up to where the scan has passed. In
    /// a lane with a backlog that ends before the scan's head: what is due at the same instant
    /// waits for the scan, which shares its budget among the lanes, while the sweep would take all
    /// of it at once.
    pub fn spans(&self) -> Vec<Span> {
        let upto = |state: &LaneState| match state.behind {
            true => state.passed.min(Micros(state.head.0.0.saturating_sub(1))),
            false => state.passed,
        };
        let passed = self.lanes.iter().filter(|(_, state)| state.passed > BEGINNING);
        passed
            .map(|(lane, state)| Span {
                cursor: Cursor { lane: *lane, at: BEGINNING, id: i64::MIN },
                upto: upto(state),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dueline_store::relay::Claimed;

    const WINDOW: Duration = Duration::from_micros(50);

    fn book() -> Book {
        let mut book = Book::default();
        for lane in [1, 2] {
            book.add(lane, Route::for_tests("orders", "1m"), Micros(1_000));
        }
        book
    }

    fn alarm(lane: i32, next_at: i64) -> Claimed {
        Claimed {
            id: next_at,
            lane,
            next_at: Micros(next_at),
            generation: 0,
            attempt: 0,
            fence: 1,
            claim_no: 1,
            claimed_at: Micros(2_000),
        }
    }

    fn round(claimed: Vec<Claimed>, share: usize) -> Round {
        Round {
            now: Micros(2_000),
            ready_lanes: 2,
            share,
            lanes_left_out: false,
            claimed,
            bodies: Vec::new(),
        }
    }

    #[test]
    fn s03_a_lane_that_filled_its_share_goes_on_where_it_stopped() {
        let mut book = book();
        let asked = book.heads(|_| true);
        let claimed = vec![alarm(1, 1_100), alarm(2, 1_150), alarm(1, 1_200)];
        let applied = book.apply(&asked, &round(claimed, 2), Micros(2_000));
        assert!(applied.more);
        let heads = book.heads(|_| true);
        assert_eq!((heads[0].at, heads[0].id), (Micros(1_200), 1_200));
        assert_eq!(book.watermark(), Some(Micros(1_200)), "lane 2 is at 2,000");
    }

    #[test]
    fn s02_a_round_reads_back_by_the_window_from_what_was_passed_or_now() {
        let mut book = book();
        let asked = book.heads(|_| true);
        book.apply(&asked, &round(vec![alarm(1, 1_100)], 2), Micros(2_000));
        let starts = book.starts(|_| true, Some(Micros(2_100)), WINDOW);
        assert!(starts.iter().all(|c| c.at == Micros(1_950) && c.id == i64::MIN));
        let back = book.starts(|_| true, Some(Micros(1_500)), WINDOW);
        assert!(back.iter().all(|c| c.at == Micros(1_450)), "the clock went back");
    }

    #[test]
    fn l02_a_lane_with_a_backlog_does_not_look_back() {
        let mut book = book();
        let asked = book.heads(|_| true);
        book.apply(&asked, &round(vec![alarm(1, 1_100), alarm(1, 1_200)], 2), Micros(2_000));
        let starts = book.starts(|_| true, Some(Micros(2_100)), WINDOW);
        assert_eq!((starts[0].at, starts[0].id), (Micros(1_200), 1_200));
        assert_eq!(starts[1].at, Micros(1_950));
    }

    #[test]
    fn q01_the_sweep_leaves_a_backlog_to_the_scan() {
        let mut book = book();
        let asked = book.heads(|_| true);
        book.apply(&asked, &round(vec![alarm(1, 1_200), alarm(1, 1_200)], 2), Micros(2_000));
        let upto: Vec<Micros> = book.spans().iter().map(|span| span.upto).collect();
        assert_eq!(upto, [Micros(1_199), Micros(2_000)], "many may be due at the same instant");
    }

    #[test]
    fn h01_a_row_behind_what_was_passed_is_late_by_its_lag() {
        let mut book = book();
        let asked = book.starts(|_| true, None, WINDOW);
        let applied = book.apply(&asked, &round(vec![alarm(1, 990)], 500), Micros(2_000));
        assert_eq!(applied.latest_lag, Some(Duration::from_micros(1_010)));
    }

    #[test]
    fn h13_what_was_released_is_found_again_without_a_sweep() {
        let mut book = book();
        let asked = book.heads(|_| true);
        book.apply(&asked, &round(vec![alarm(1, 1_100)], 2), Micros(2_000));
        book.go_back(1, Micros(1_100));
        let head = book.heads(|_| true)[0];
        assert!((head.at, head.id) < (Micros(1_100), i64::MIN));
        assert_eq!(book.watermark(), Some(Micros(1_100)));
    }

    #[test]
    fn lanes_that_the_budget_left_out_are_not_passed() {
        let mut book = book();
        let asked = book.heads(|_| true);
        let mut round = round(vec![alarm(1, 1_100)], 1);
        round.lanes_left_out = true;
        assert!(book.apply(&asked, &round, Micros(2_000)).more);
        assert_eq!(book.watermark(), Some(Micros(1_000)));
    }
}
