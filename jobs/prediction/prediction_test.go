package prediction

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestCopyJSONString copies text whose characters lie across the buffers'
// edges, and compares with the standard library.
func TestCopyJSONString(t *testing.T) {
	for _, text := range []string{"", "x", strings.Repeat("日本", 30_000), "x" + strings.Repeat("é\n\"", 30_000), strings.Repeat("plain ", 20_000) + "\xe6\x97", strings.Repeat("a", 32<<10-1) + "日"} {
		var b strings.Builder
		if err := copyJSONString(&b, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got != strings.ToValidUTF8(text, "\ufffd") && got != strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\ufffd", "\ufffd\ufffd") {
			t.Errorf("%.20q…: %d bytes came back as %d, %v", text, len(text), len(got), err)
		}
	}
	if err := copyJSONString(io.Discard, iotest.ErrReader(errors.New("connection lost"))); err == nil {
		t.Error("a source that breaks: no error")
	}
}

// A prediction is one line of JSON, whatever stands in the names and in the patch.
func TestWrite(t *testing.T) {
	var b strings.Builder
	if err := Write(&b, "a\"b\n", "m\u2028", strings.NewReader("+x\n\x00")); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || strings.ContainsRune(b.String(), '\n') {
		t.Fatalf("%q: %v", b.String(), err)
	}
	if got["instance_id"] != "a\"b\n" || got["model_name_or_path"] != "m\u2028" || got["model_patch"] != "+x\n\x00" {
		t.Errorf("got %q", got)
	}
}
