"""Language models behind one protocol: an OpenAI-compatible server, a recording, a mailbox."""
