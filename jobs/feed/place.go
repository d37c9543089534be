package feed

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// goodFor is how long a reader may go on from a place. What is removed because its time
// is over leaves no trace, so one that was away for longer reads everything again.
const goodFor = time.Hour

// A place is how far a reader has come in each source.
type place struct {
	epoch string    // of the installation: another one's numbers mean something else
	at    time.Time // when it was
	seqs  []uint64
}

// with returns the place behind a message of a source.
func (p place) with(source int, seq uint64) place {
	p.seqs = slices.Clone(p.seqs)
	p.seqs[source] = max(p.seqs[source], seq)
	return p
}

// before reports whether a place is before another one, or the same, in every source. One
// behind it may have come from a broker that has lost what it had since.
func (p place) before(other place) bool {
	for i, seq := range p.seqs {
		if seq > other.seqs[i] {
			return false
		}
	}
	return true
}

// String writes a place as readers get it.
func (p place) String() string {
	parts := []string{p.epoch, strconv.FormatInt(p.at.Unix(), 36)}
	for _, seq := range p.seqs {
		parts = append(parts, strconv.FormatUint(seq, 36))
	}
	return strings.Join(parts, "-")
}

// parsePlace reads a place of this installation. Another one's is not ok, nor is one of
// a release that has other sources.
func parsePlace(text, epoch string, sources int) (place, bool) {
	parts := strings.Split(text, "-")
	if len(parts) != 2+sources || parts[0] != epoch {
		return place{}, false
	}
	at, err := strconv.ParseInt(parts[1], 36, 64)
	if err != nil {
		return place{}, false
	}
	p := place{epoch: epoch, at: time.Unix(at, 0)}
	for _, part := range parts[2:] {
		seq, err := strconv.ParseUint(part, 36, 64)
		if err != nil {
			return place{}, false
		}
		p.seqs = append(p.seqs, seq)
	}
	return p, true
}

func newItem(behind place, kind Kind, change Change) Item {
	data, err := json.Marshal(change)
	if err != nil {
		panic(err) // it is text and numbers
	}
	return Item{Place: behind.String(), Kind: kind, Data: data}
}
