//! `sqlx::migrate!` takes the migrations in at compile time, and only a build script tells cargo that a new
//! file among them is a change.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
