package simworker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cespare/xxhash/v2"

	"berth/client"
)

// maxPrompt bounds a request to the simulated engine, in bytes.
const maxPrompt = 1 << 20

// blockBytes is the text that one block stands for.
const blockBytes = 4 * blockTokens

// reply is what the simulated engine answers.
type reply struct {
	Instance string `json:"instance"`
	Text     string `json:"text"`
	Turns    int    `json:"turns"` // stored, with this exchange
	Usage    usage  `json:"usage"`
	// Recovered says that the context was rebuilt from Berth for this request.
	Recovered bool `json:"recovered"`
}

type usage struct {
	PromptTokens int     `json:"prompt_tokens"`
	Details      details `json:"prompt_tokens_details"`
}

type details struct {
	CachedTokens int `json:"cached_tokens"`
}

// Handler serves POST /chat with the user's text as body and the headers that a
// gateway passes on, and GET /health.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /chat", w.chat)
	mux.HandleFunc("GET /health", func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, w.State()+"\n") // the caller is gone if this fails
	})
	return mux
}

func (w *Worker) chat(rw http.ResponseWriter, r *http.Request) {
	passed, err := client.FromHeader(r.Header)
	if err != nil || passed.Session.ID == "" {
		http.Error(rw, "the gateway passed on no session", http.StatusBadRequest)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxPrompt))
	if err != nil {
		http.Error(rw, "the prompt is too large", http.StatusRequestEntityTooLarge)
		return
	}
	answer := fmt.Sprintf("%s has read %d bytes.", w.ID(), len(text))
	exchange := []client.Turn{message("user", string(text)), message("assistant", answer)}
	served, err := w.Serve(r.Context(), Request{
		Session: passed.Session, Hint: passed.Hint, Turns: exchange,
		Prompt: func(stored []client.Turn) []uint64 {
			return promptBlocks(append(stored[:len(stored):len(stored)], exchange[0]))
		},
	})
	switch {
	case client.AnswerNotOwner(rw, err):
		return
	case errors.Is(err, ErrDead):
		panic(http.ErrAbortHandler)
	case err != nil:
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("X-Berth-Handle", string(served.Receipt.Handle))
	_ = json.NewEncoder(rw).Encode(reply{ // the caller is gone if this fails
		Instance: w.ID(), Text: answer, Turns: served.Receipt.Turns, Recovered: served.Recovered,
		Usage: usage{PromptTokens: blockTokens * served.Blocks, Details: details{CachedTokens: blockTokens * served.Hit.Blocks}},
	})
}

func message(role, content string) client.Turn {
	value, _ := json.Marshal(map[string]string{"role": role, "content": content}) // strings always marshal
	return client.JSON(value)
}

// promptBlocks cuts the turns' text into blocks, each named by the hash of all
// text up to its end: equal ids mean equal prefixes.
func promptBlocks(turns []client.Turn) []uint64 {
	var blocks []uint64
	h := xxhash.New()
	filled := 0
	for _, t := range turns {
		for text := []byte(t.Value); len(text) > 0; {
			n := min(len(text), blockBytes-filled)
			_, _ = h.Write(text[:n]) // a hash does not fail
			text, filled = text[n:], filled+n
			if filled == blockBytes {
				blocks, filled = append(blocks, h.Sum64()), 0
			}
		}
	}
	if filled > 0 {
		blocks = append(blocks, h.Sum64())
	}
	return blocks
}
