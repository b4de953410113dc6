//! Every byte outside the edited spans goes out as it came.
