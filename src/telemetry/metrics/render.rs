//! The exposition: OpenMetrics with exemplars for a scraper that asks for it, else the text format that every scraper reads.

use http::HeaderMap;
use prometheus_client::encoding::{prometheus_text, text};

use super::Metrics;
use super::catalogue;
use super::timings::Exemplar;

/// A format of the exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.0, with exemplars.
    OpenMetrics,
    /// The Prometheus text format 0.0.4.
    Text,
}

impl Exposition {
    /// What a scraper with these headers reads: OpenMetrics only if it names it, and prefers it to plain text.
    #[must_use]
    pub fn asked_by(headers: &HeaderMap) -> Self {
        let ranges = headers
            .get_all(http::header::ACCEPT)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|list| list.split(','));
        let (mut open, mut plain) = (0.0_f32, 0.0_f32);
        for range in ranges {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts
                .filter_map(|part| part.strip_prefix("q="))
                .find_map(|q| q.trim().parse::<f32>().ok())
                .unwrap_or(1.0);
            match kind.as_str() {
                "application/openmetrics-text" => open = open.max(quality),
                "text/plain" | "text/*" | "*/*" => plain = plain.max(quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// The media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// A bucket with an exemplar.
struct Noted {
    /// The family's bucket series, up to its labels.
    series: String,
    /// The labels behind `le`.
    labels: String,
    bound: f64,
    exemplar: Exemplar,
}

impl Noted {
    /// Whether this line of an exposition is the bucket's.
    fn is_on(&self, line: &str) -> bool {
        let Some(rest) = line.strip_prefix(&self.series) else {
            return false;
        };
        let Some((bound, rest)) = rest.split_once('"') else {
            return false;
        };
        let same = bound.parse::<f64>().is_ok_and(|b| b == self.bound);
        same && rest
            .strip_prefix(&self.labels)
            .is_some_and(|rest| rest.starts_with("} "))
    }
}

impl Metrics {
    /// The exposition; the error is the formatter's, which writing to a string never meets.
    ///
    /// # Errors
    /// Never in practice.
    pub fn render(&self, format: Exposition) -> Result<String, std::fmt::Error> {
        self.breakers.refresh();
        let mut out = String::with_capacity(64 << 10);
        match format {
            Exposition::Text => prometheus_text::encode(&mut out, &self.book.0)?,
            Exposition::OpenMetrics => {
                text::encode(&mut out, &self.book.0)?;
                let noted = self.exemplars();
                if !noted.is_empty() {
                    out = with_exemplars(&out, &noted);
                }
            }
        }
        Ok(out)
    }

    fn exemplars(&self) -> Vec<Noted> {
        let mut found = Vec::new();
        let own = [
            (
                catalogue::REQUEST_SECONDS.name,
                &self.families.request_seconds,
            ),
            (catalogue::OVERHEAD.name, &self.families.overhead),
        ];
        for (family, cells) in own {
            for (labels, cell) in cells.each() {
                note(&mut found, family, &labels, cell.exemplars());
            }
        }
        for (family, cells) in self.calls.traced() {
            for (labels, cell) in cells.each() {
                note(&mut found, family, &labels, cell.exemplars());
            }
        }
        found
    }
}

fn note(
    found: &mut Vec<Noted>,
    family: &str,
    labels: &[(&str, impl AsRef<str>)],
    exemplars: Vec<(f64, Exemplar)>,
) {
    for (bound, exemplar) in exemplars {
        let labels = labels.iter().map(|(name, value)| {
            let value = value.as_ref().replace('\\', "\\\\").replace('"', "\\\"");
            format!(",{name}=\"{value}\"")
        });
        found.push(Noted {
            series: format!("{family}_bucket{{le=\""),
            labels: labels.collect(),
            bound,
            exemplar,
        });
    }
}

/// Puts exemplars behind the lines of their buckets. The library writes them only for histograms of its own, which take two locks for each
/// value; these take none.
fn with_exemplars(text: &str, noted: &[Noted]) -> String {
    let mut out = String::with_capacity(text.len() + noted.len() * 96);
    for line in text.lines() {
        out.push_str(line);
        if let Some(found) = noted.iter().find(|n| n.is_on(line)) {
            let Exemplar { trace, value } = found.exemplar;
            let trace = trace.hex();
            out.push_str(&format!(" # {{trace_id=\"{}\"}} {value:?}", trace.as_str()));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, header};

    use super::Exposition;

    #[test]
    fn a_scraper_gets_the_format_that_it_reads() {
        for (accept, expected) in [
            ("", Exposition::Text),
            ("*/*", Exposition::Text),
            ("text/plain; version=0.0.4", Exposition::Text),
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", Exposition::Text),
            ("application/openmetrics-text", Exposition::OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Exposition::OpenMetrics,
            ),
            (
                "text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.5",
                Exposition::Text,
            ),
            ("application/openmetrics-text;q=0", Exposition::Text),
        ] {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(header::ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(Exposition::asked_by(&headers), expected, "{accept}");
        }
    }
}
