package trace

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

const (
	textPerToken = 4        // bytes of text an average token stands for
	maxText      = 16 << 10 // bytes of text one turn has at most
)

// words are drawn with the frequent ones first, so that the text compresses
// about as prose does. Some are not ASCII, because a store that mangles bytes
// mangles those first.
var words = strings.Fields(`
	the of and to a in is that it you for on are as with be this have from or one not but what all were when we
	there can an your which their said if do will each about how up out them then she many some so these would
	other into has more her two like him see time could no make than first been its who now people my made over
	did down only way find use may water long little very after words called just where most know get through
	back much before go good new write our used me man too any day same right look think also around another
	came come work three must because does part even place well such here take why things help put years
	different away again off went old number great tell men say small every found still between name should
	home big give air line set own under read last never us left end along while might next sound below saw
	something thought both few those always looked show large often together asked house world going want
	function returns error value request answer question paragraph summary table column index latency session
	prompt context cache prefix token block instance naïve café Zürich señor 東京 мир שלום 🙂 👩‍🚀
`)

// Text makes up what turn n of a session says: about four bytes for each
// token and at most 16 KiB. It is the same for the same arguments, differs
// between turns that are more than a few words long, is valid UTF-8 and holds
// nothing that JSON escapes.
func Text(session, n, tokens int) string {
	size := min(max(tokens, 1)*textPerToken, maxText)
	source := rand.NewPCG(uint64(session), uint64(n))
	var b strings.Builder
	b.Grow(size + 32)
	for sentence := 0; b.Len() < size; {
		word := frequent(source.Uint64())
		b.WriteString(word)
		sentence += len(word)
		if sentence > 80 {
			b.WriteByte('.')
			sentence = 0
		}
		b.WriteByte(' ')
	}
	return cut(b.String(), size)
}

// frequent picks a word; the product of two uniform halves makes the first
// words of the list the common ones.
func frequent(random uint64) string {
	product := (random >> 32) * (random & 0xffffffff) >> 32
	return words[product*uint64(len(words))>>32]
}

// cut shortens text to at most size bytes without splitting a character.
func cut(text string, size int) string {
	for size < len(text) && !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size]
}
