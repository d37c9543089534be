package redact

import (
	"bytes"
	"encoding/json"

	"github.com/penstock-run/penstock/jobs"
)

// Event returns e without the secrets, in its data and in the agent's line. It does not
// change anything that e points to.
func (r *Redactor) Event(e jobs.Event) jobs.Event {
	e.Data = r.JSON(e.Data)
	if e.Raw != nil {
		raw := *e.Raw
		raw.JSON = r.JSON(raw.JSON)
		raw.Text = string(r.Text([]byte(raw.Text)))
		e.Raw = &raw
	}
	return e
}

// JSON returns p, which is JSON, without the secrets; the result is JSON, too. It
// returns p itself if it contains none.
func (r *Redactor) JSON(p []byte) []byte {
	var out []byte
	done := 0 // up to where p is in out
	for i := 0; i < len(p); {
		end, clean := i+1, []byte(nil)
		switch c := p[i]; {
		case c == '"':
			end = i + stringEnd(p[i:])
			clean = r.cleanString(p[i:end])
		case c == '-' || c >= '0' && c <= '9':
			end = i + numberEnd(p[i:])
			clean = r.cleanNumber(p[i:end])
		}
		if clean != nil {
			out = append(append(out, p[done:i]...), clean...)
			done = end
		}
		i = end
	}
	if done == 0 {
		return p
	}
	return append(out, p[done:]...)
}

// cleanString returns the replacement of a string, quotes included, or nil if the
// string may stay. It compares the decoded string.
func (r *Redactor) cleanString(quoted []byte) []byte {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		var s string
		if json.Unmarshal(quoted, &s) == nil {
			text = []byte(s)
		}
	}
	clean := r.Text(text)
	if len(clean) == len(text) && (len(text) == 0 || &clean[0] == &text[0]) {
		return nil
	}
	out, err := json.Marshal(string(clean))
	if err != nil {
		panic(err) // a string can always be written
	}
	return out
}

// cleanNumber does the same for a number: a secret may consist of digits.
func (r *Redactor) cleanNumber(number []byte) []byte {
	clean := r.Text(number)
	if len(number) < MinLength || &clean[0] == &number[0] {
		return nil
	}
	return append(append([]byte{'"'}, clean...), '"')
}

// stringEnd is the length of the string that p begins with, quotes included.
func stringEnd(p []byte) int {
	for i := 1; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(p)
}

func numberEnd(p []byte) int {
	for i, c := range p {
		if (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			return i
		}
	}
	return len(p)
}
