//! The read side: which memories answer a query, found within a deadline and inside a scope.
