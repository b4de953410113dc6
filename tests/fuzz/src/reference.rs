//! The event stream format as its specification words it (WHATWG HTML, section 9.2.6), slow and plain: what the product's own reader is
//! compared with.

/// The data of every event, in order. An event that the end cuts off counts, as its usage was spent.
pub(super) fn events(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    let mut data: Option<Vec<u8>> = None;
    for line in lines(stream) {
        if line.is_empty() {
            events.extend(data.take());
            continue;
        }
        // A byte order mark belongs at the start of a stream; one before any other line is read over as well.
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        if name != b"data" {
            continue;
        }
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &mut data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => data = Some(value.to_vec()),
        }
    }
    events.extend(data);
    events
}

/// Lines without their ends, which are LF, CRLF or CR.
fn lines(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = stream.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' => {
                if bytes.peek() == Some(&b'\n') {
                    bytes.next();
                }
                lines.push(std::mem::take(&mut line));
            }
            b'\n' => lines.push(std::mem::take(&mut line)),
            other => line.push(other),
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}
