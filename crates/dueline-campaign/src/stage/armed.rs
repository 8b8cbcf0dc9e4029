//! Processes that are expected to end: by a fail point.

use anyhow::Result;

use super::Stage;
use crate::role::Role;

impl Stage {
    /// [`Stage::start_process`], but the supervisor keeps its hands off what becomes of it, until somebody
    /// starts or resumes it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start_held(&self, role: Role, environment: &[(String, String)]) -> Result<()> {
        self.start_as(role, environment, true).await
    }

    /// What a process said since it was last started.
    ///
    /// # Errors
    /// When its log cannot be read.
    pub async fn output(&self, role: Role) -> Result<String> {
        self.slot(role).await.service.output()
    }

    pub(super) async fn start_as(
        &self,
        role: Role,
        environment: &[(String, String)],
        held: bool,
    ) -> Result<()> {
        let mut slot = self.slot(role).await;
        slot.service.kill();
        let mut program = slot.program.clone();
        program.environment.extend(environment.iter().cloned());
        slot.service = program.start()?;
        slot.held = held;
        Ok(())
    }
}
