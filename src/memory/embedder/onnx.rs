//! A sentence transformer of the BERT family from an ONNX file, run in process: word pieces between `[CLS]` and `[SEP]`, the mean of the last
//! layer, unit length.
//!
//! Questions and documents have a thread each, so a question never waits behind a document; the runtime works on those threads alone and
//! no thread of the server's is held. Work whose caller has gone is passed over.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use async_trait::async_trait;
use moka::future::Cache;
use rten::{Model, ModelOptions, NodeId, OpRegistry, RunOptions, ThreadPool, op_types as op};
use rten_tensor::{AsView, Layout, NdTensor};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::config::EmbedderConfig;

use super::wordpiece::WordPiece;
use super::{Calibration, EmbedError, Embedder, normalise};

/// Pieces of a question, `[CLS]` and `[SEP]` included: time grows with every piece, and a question's point is in its beginning.
const QUESTION_PIECES: usize = 32;
/// Pieces of a document: what the model was trained on.
const DOCUMENT_PIECES: usize = 256;
/// Texts that wait for a thread. Beyond it a question is told so at once and a document waits for its place.
const QUEUE: usize = 64;
/// Hexadecimal digits of the file's hash in the model's name.
const HASH_DIGITS: usize = 12;

/// The embedder.
pub struct OnnxEmbedder {
    name: String,
    calibration: Calibration,
    tokenizer: WordPiece,
    /// `[CLS]` and `[SEP]`.
    ends: [u32; 2],
    questions: mpsc::Sender<Work>,
    documents: mpsc::Sender<Work>,
    known: Cache<[u8; 32], Vec<f32>>,
}

impl fmt::Debug for OnnxEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnnxEmbedder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// One text on its way.
struct Work {
    pieces: Vec<i32>,
    reply: oneshot::Sender<Result<Vec<f32>, EmbedError>>,
}

impl OnnxEmbedder {
    /// Loads the model and its `vocab.txt`: a tenth of a second for a model of 23 MB.
    ///
    /// # Errors
    /// When a file is missing, is no such model, or a thread cannot be started; the text names the key.
    pub fn load(config: &EmbedderConfig) -> Result<Self, String> {
        let path = &config.path;
        let fail = |what: &str| format!("embedder.path: {what}");
        let file = std::fs::read(path).map_err(|e| {
            fail(&format!(
                "the model cannot be read ({e}); make models makes one"
            ))
        })?;
        let hash = Sha256::digest(&file);
        let network = Arc::new(Network::load(file).map_err(|e| fail(&e))?);
        let (tokenizer, ends) = tokenizer(path).map_err(|e| fail(&e))?;
        let probe = network.run(&ends.map(u32::cast_signed));
        let dimensions = probe.map_err(|e| fail(e.0))?.len();
        let start = |thread: &str| work(thread, &network).map_err(|e| fail(&e.to_string()));
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let hash = hash.get(..HASH_DIGITS).unwrap_or(&hash);
        Ok(Self {
            name: format!("onnx:{}/{dimensions}/{hash}", stem.unwrap_or("model")),
            calibration: Calibration::of(config),
            tokenizer,
            ends,
            questions: start("ibex-embed-question")?,
            documents: start("ibex-embed-document")?,
            known: Cache::new(config.cache_entries),
        })
    }

    /// The pieces of a text between the two ends.
    fn pieces(&self, text: &str, most: usize) -> Vec<i32> {
        let [first, last] = self.ends.map(u32::cast_signed);
        let mut pieces = vec![first];
        // A word has one piece at least.
        self.tokenizer.ids(text, most, |id| {
            if pieces.len() + 1 < most {
                pieces.push(id.cast_signed());
            }
        });
        pieces.push(last);
        pieces
    }
}

#[async_trait]
impl Embedder for OnnxEmbedder {
    fn model(&self) -> &str {
        &self.name
    }

    fn calibration(&self) -> Calibration {
        self.calibration
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            let (work, answer) = order(self.pieces(text, DOCUMENT_PIECES));
            self.documents.send(work).await.map_err(|_| STOPPED)?;
            vectors.push(answer.await.map_err(|_| STOPPED)??);
        }
        Ok(vectors)
    }

    async fn embed_query(&self, text: &str, until: Instant) -> Result<Vec<f32>, EmbedError> {
        let key: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let asked = self.known.try_get_with(key, async {
            let (work, answer) = order(self.pieces(text, QUESTION_PIECES));
            self.questions
                .try_send(work)
                .map_err(|_| EmbedError("too many questions wait for the embedder"))?;
            answer.await.map_err(|_| STOPPED)?
        });
        match timeout_at(until, asked).await {
            Ok(answered) => answered.map_err(|error| *error),
            Err(_) => Err(EmbedError::TIMEOUT),
        }
    }
}

const STOPPED: EmbedError = EmbedError("the embedder's thread has stopped");

fn order(pieces: Vec<i32>) -> (Work, oneshot::Receiver<Result<Vec<f32>, EmbedError>>) {
    let (reply, answer) = oneshot::channel();
    (Work { pieces, reply }, answer)
}

/// Starts a thread that runs the network for whatever comes. It ends with the last sender.
fn work(name: &str, network: &Arc<Network>) -> std::io::Result<mpsc::Sender<Work>> {
    let (queue, mut waiting) = mpsc::channel::<Work>(QUEUE);
    let network = Arc::clone(network);
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            while let Some(Work { pieces, reply }) = waiting.blocking_recv() {
                if reply.is_closed() {
                    continue;
                }
                let ran = catch_unwind(AssertUnwindSafe(|| network.run(&pieces)));
                let failed = Err(EmbedError("the embedder's runtime broke down"));
                reply.send(ran.unwrap_or(failed)).ok();
            }
        })?;
    Ok(queue)
}

/// The model and where its inputs go.
struct Network {
    model: Model,
    /// One thread: the server decides how many cores there are for what.
    pool: Arc<ThreadPool>,
    pieces: NodeId,
    mask: NodeId,
    /// Which of two texts a piece belongs to; not every file asks for it.
    kinds: Option<NodeId>,
    output: NodeId,
}

impl Network {
    fn load(file: Vec<u8>) -> Result<Self, String> {
        // Prepacked weights cost memory and make it three times as fast.
        let model = ModelOptions::with_ops(operators())
            .prepack_weights(true)
            .load(file)
            .map_err(|e| format!("no usable ONNX model: {e}"))?;
        let missing = |_| "the model has no inputs input_ids and attention_mask".to_owned();
        let output = model
            .find_node("last_hidden_state")
            .or_else(|| model.output_ids().first().copied());
        Ok(Self {
            pieces: model.node_id("input_ids").map_err(missing)?,
            mask: model.node_id("attention_mask").map_err(missing)?,
            kinds: model.find_node("token_type_ids"),
            output: output.ok_or("the model has no output")?,
            pool: Arc::new(ThreadPool::with_num_threads(1)),
            model,
        })
    }

    /// The vector of one text. Nothing is padded, so the mean is over all its pieces.
    fn run(&self, pieces: &[i32]) -> Result<Vec<f32>, EmbedError> {
        let failed = EmbedError("the model could not be run");
        let shape = [1, pieces.len()];
        let ids = NdTensor::from_data(shape, pieces.to_vec());
        let (ones, zeros) = (
            NdTensor::<i32, 2>::full(shape, 1),
            NdTensor::<i32, 2>::zeros(shape),
        );
        let mut inputs = vec![
            (self.pieces, ids.view().into()),
            (self.mask, ones.view().into()),
        ];
        if let Some(kinds) = self.kinds {
            inputs.push((kinds, zeros.view().into()));
        }
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.pool)));
        let [layer] = self
            .model
            .run_n(inputs, [self.output], Some(options))
            .map_err(|_| failed)?;
        let layer: NdTensor<f32, 3> = layer.try_into().map_err(|_| failed)?;
        let [_, _, width] = layer.shape();
        let numbers = layer.to_vec();
        let mut mean = vec![0.0; width];
        for row in numbers.chunks_exact(width.max(1)) {
            mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        normalise(mean)
    }
}

/// What encoders of this family are made of, in f32 and quantised. Naming them keeps the rest of the runtime out of the binary.
fn operators() -> OpRegistry {
    OpRegistry::with_ops(&[
        &op::Add,
        &op::Cast,
        &op::Concat,
        &op::ConstantOfShape,
        &op::DequantizeLinear,
        &op::Div,
        &op::DynamicQuantizeLinear,
        &op::Equal,
        &op::Erf,
        &op::Expand,
        &op::Gather,
        &op::Gelu,
        &op::Gemm,
        &op::Identity,
        &op::LayerNormalization,
        &op::MatMul,
        &op::MatMulInteger,
        &op::Mul,
        &op::Pow,
        &op::ReduceMean,
        &op::Reshape,
        &op::Shape,
        &op::Slice,
        &op::Softmax,
        &op::Split,
        &op::Sqrt,
        &op::Squeeze,
        &op::Sub,
        &op::Tanh,
        &op::Transpose,
        &op::Unsqueeze,
        &op::Where,
    ])
}

/// The vocabulary beside the model, with the ids of `[CLS]` and `[SEP]`.
fn tokenizer(model: &Path) -> Result<(WordPiece, [u32; 2]), String> {
    let file = model.with_file_name("vocab.txt");
    let vocabulary =
        std::fs::read_to_string(file).map_err(|e| format!("vocab.txt beside it: {e}"))?;
    // A quarter of a megabyte, once, for as long as the process lives.
    let tokenizer = WordPiece::new(Box::leak(vocabulary.into_boxed_str()));
    match (tokenizer.id("[CLS]"), tokenizer.id("[SEP]")) {
        (Some(first), Some(last)) => Ok((tokenizer, [first, last])),
        _ => Err("vocab.txt beside it has no [CLS] and [SEP]".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::OnnxEmbedder;
    use crate::config::{EmbedderConfig, EmbedderKind, embedder};
    use crate::memory::embedder::Embedder;
    use crate::memory::embedder::calibration::probes;

    /// The model that `make models` makes; without it these tests say so and prove nothing.
    fn loaded() -> Option<OnnxEmbedder> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/minilm_int8.onnx");
        if !path.exists() {
            eprintln!("SKIPPED: there is no models/minilm_int8.onnx (make models)");
            return None;
        }
        let config = EmbedderConfig {
            kind: EmbedderKind::Onnx,
            path,
            ..EmbedderConfig::default()
        };
        Some(OnnxEmbedder::load(&config).expect("a model that loads"))
    }

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    #[tokio::test]
    async fn a_paraphrase_is_nearer_than_another_subject() {
        let Some(model) = loaded() else { return };
        let texts = [
            "Which pet did she take in?",
            "She adopted a puppy from the shelter.",
            "The invoice is due in March.",
        ];
        let vectors = model.embed(&texts).await.unwrap();
        assert!(vectors.iter().all(|v| (cosine(v, v) - 1.0).abs() < 1e-4));
        assert!(cosine(&vectors[0], &vectors[1]) > cosine(&vectors[0], &vectors[2]) + 0.2);
        assert!(model.model().starts_with("onnx:minilm_int8/384/"));
    }

    #[tokio::test]
    async fn the_default_anchors_are_this_models() {
        let Some(model) = loaded() else { return };
        let (unrelated, related) = probes::measure(&model).await;
        assert!(
            (unrelated - embedder::UNRELATED).abs() < 0.02,
            "{unrelated}"
        );
        assert!((related - embedder::RELATED).abs() < 0.02, "{related}");
    }

    #[tokio::test]
    async fn a_short_question_is_embedded_like_a_document_and_a_long_one_is_cut() {
        let Some(model) = loaded() else { return };
        let soon = || Instant::now() + Duration::from_secs(20);
        let text = "Where does she keep the spare key?";
        let question = model.embed_query(text, soon()).await.unwrap();
        assert_eq!(question, model.embed(&[text]).await.unwrap()[0]);
        let long = |end: &str| format!("{} {end}", "tea ".repeat(40));
        let (one, other) = (
            model.embed_query(&long("zebra"), soon()).await.unwrap(),
            model.embed_query(&long("invoice"), soon()).await.unwrap(),
        );
        assert_eq!(one, other);
        assert_ne!(
            model.embed(&[&long("zebra")]).await.unwrap(),
            model.embed(&[&long("invoice")]).await.unwrap()
        );
    }

    #[test]
    fn a_missing_or_broken_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        let config = EmbedderConfig {
            kind: EmbedderKind::Onnx,
            path: path.clone(),
            ..EmbedderConfig::default()
        };
        let missing = OnnxEmbedder::load(&config).unwrap_err();
        assert!(missing.starts_with("embedder.path: the model cannot be read"));
        std::fs::write(&path, "no model").unwrap();
        let broken = OnnxEmbedder::load(&config).unwrap_err();
        assert!(broken.contains("no usable ONNX model"), "{broken}");
    }
}
