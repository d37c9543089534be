package results

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// predictions writes the two shapes that evaluation tools take: one object
// by instance, and one line for each.
func (r reporter) predictions() error {
	err := r.dir.files.write("preds.json", func(w io.Writer) error {
		between := "{\n"
		err := r.eachPrediction(func(id string, one func(io.Writer) error) error {
			if _, err := fmt.Fprintf(w, "%s%q: ", between, id); err != nil {
				return err
			}
			between = ",\n"
			return one(w)
		})
		if err == nil && between == "{\n" {
			_, err = io.WriteString(w, between)
		}
		if err == nil {
			_, err = io.WriteString(w, "\n}\n")
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.dir.files.write("preds.jsonl", func(w io.Writer) error {
		return r.eachPrediction(func(_ string, one func(io.Writer) error) error {
			if err := one(w); err != nil {
				return err
			}
			_, err := io.WriteString(w, "\n")
			return err
		})
	})
}

// eachPrediction hands on one prediction after the other. Patches are copied
// and not kept: a batch may have more of them than there is memory.
func (r reporter) eachPrediction(each func(id string, one func(io.Writer) error) error) error {
	agent := r.dir.Manifest().Options["agent"]
	for result, err := range r.dir.Results() {
		if err != nil {
			return err
		}
		err := each(result.ID, func(w io.Writer) error {
			patch, err := r.dir.files.openRegular(patchName(result.ID))
			if err != nil {
				return err
			}
			defer patch.Close()
			if _, err := io.WriteString(w, `{"model_name_or_path": `); err != nil {
				return err
			}
			if err := jsonString(w, cmp.Or(result.Model, agent, "penstock")); err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, `, "instance_id": %q, "model_patch": `, result.ID); err != nil {
				return err
			}
			if err := copyJSONString(w, patch); err != nil {
				return err
			}
			_, err = io.WriteString(w, "}")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
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
