// Package prediction writes results as tools take them that evaluate agents on benchmarks:
// predictions of SWE-bench. A patch is copied and never held, however long it is.
package prediction

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Write writes the prediction of one instance: an object without a line break.
func Write(w io.Writer, id, model string, patch io.Reader) error {
	name, err := json.Marshal(model)
	if err != nil {
		return err
	}
	instance, err := json.Marshal(id)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, `{"model_name_or_path": %s, "instance_id": %s, "model_patch": `, name, instance); err != nil {
		return err
	}
	if err := copyJSONString(w, patch); err != nil {
		return err
	}
	_, err = io.WriteString(w, "}")
	return err
}

// copyJSONString copies text as a JSON string. Bytes that are no UTF-8 become
// the replacement character, because JSON has nothing else for them: such a
// patch is whole in its file only.
func copyJSONString(w io.Writer, r io.Reader) error {
	in, out := bufio.NewReaderSize(r, 32<<10), bufio.NewWriterSize(w, 32<<10)
	// Errors of out stick and come back from Flush.
	_ = out.WriteByte('"')
	for {
		// Most of a patch is plain: it is copied in runs.
		ahead, err := in.Peek(max(in.Buffered(), 1))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		plain := bytes.IndexFunc(ahead, func(c rune) bool { return c < 0x20 || c > 0x7e || c == '"' || c == '\\' })
		if plain < 0 {
			plain = len(ahead)
		}
		_, _ = out.Write(ahead[:plain])
		_, _ = in.Discard(plain) // they are in the buffer
		if plain == len(ahead) {
			continue
		}
		c, _, err := in.ReadRune()
		if err != nil {
			return err
		}
		switch {
		case c == '"' || c == '\\':
			_, _ = out.Write([]byte{'\\', byte(c)})
		case c == '\n':
			_, _ = out.WriteString(`\n`)
		case c == '\t':
			_, _ = out.WriteString(`\t`)
		case c < 0x20 || c == 0x7f || c == '\u2028' || c == '\u2029' || c == utf8.RuneError:
			_, _ = fmt.Fprintf(out, `\u%04x`, c)
		default:
			_, _ = out.WriteRune(c)
		}
	}
	_ = out.WriteByte('"')
	return out.Flush()
}
