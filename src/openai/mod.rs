//! Wire types of the OpenAI API: the lossless request, the edits made to it, and the event tap. Nothing here knows tenants or memories.
