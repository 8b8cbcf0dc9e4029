//! What an apply would do, or has done: one list for the database and the broker.

/// What happens to one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is made.
    Create,
    /// It is changed.
    Change,
    /// It is as it should be.
    Keep,
    /// It is removed, after what depends on it was moved.
    Remove,
    /// It cannot be done; the detail says why and what to do.
    Refuse,
}

impl Action {
    /// The text that people see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Keep => "keep",
            Self::Remove => "remove",
            Self::Refuse => "refuse",
        }
    }
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PlanItem {
    /// `queue`, `tier`, `lanes`, `kind` or `topic`.
    pub what: &'static str,
    /// Its name; that of a tier stands behind its queue's, `orders/10s`.
    pub name: String,
    /// What happens to it.
    pub action: Action,
    /// From what to what, or why not.
    pub detail: String,
}

impl PlanItem {
    /// A line.
    #[must_use]
    pub fn new(
        what: &'static str,
        name: impl Into<String>,
        action: Action,
        detail: impl Into<String>,
    ) -> Self {
        Self { what, name: name.into(), action, detail: detail.into() }
    }
}

/// What an apply would do, or has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Plan {
    /// Every thing of the configuration, and every thing that is there and no longer in it.
    pub items: Vec<PlanItem>,
}

impl Plan {
    /// Whether anything would be made, changed or removed.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.items
            .iter()
            .any(|i| matches!(i.action, Action::Create | Action::Change | Action::Remove))
    }

    /// What cannot be done. Nothing at all is done then.
    pub fn refusals(&self) -> impl Iterator<Item = &PlanItem> {
        self.items.iter().filter(|i| i.action == Action::Refuse)
    }
}
