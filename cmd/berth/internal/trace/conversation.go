package trace

import (
	"bytes"
	_ "embed"
	"io"
)

//go:embed mooncake-conversation.jsonl.gz
var conversation []byte

// Conversation returns the embedded trace: 12,031 requests that a production
// chat service answered in one hour. NOTICE.md has its source and licence.
func Conversation() io.Reader { return bytes.NewReader(conversation) }
