//! Context assembly, seen from outside: what a request gets, what it never gets, and what happens when a part of it is slow or broken.

mod fakes;
mod faults;
mod injection;
mod isolation;
mod outcomes;
mod reader;
mod reads;
mod record;
mod stable;
mod templates;
