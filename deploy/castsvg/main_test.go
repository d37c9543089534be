package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	t.Parallel()
	var picture bytes.Buffer
	cast := `{"version":2,"width":20,"height":5}
[0.0,"o","\u001b[1;32m$ \u001b[0mls <a>\r\n"]
[0.5,"i","typed"]
[60,"o","\u001b]0;title\u0007\u001b[?25ldone\r\n"]
`
	if err := draw(strings.NewReader(cast), &picture); err != nil {
		t.Fatal(err)
	}
	got := picture.String()
	for _, want := range []string{
		`style="fill:#56d364">$ </text>`, // in its color
		`>ls &lt;a&gt;</text>`,           // escaped, and there from the beginning
		`class="a0">done</text>`,         // later, without the control sequences
		`33.33%{opacity:1}`,              // a minute is 1.5 s, after half a one, of 6
		"prefers-reduced-motion",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the picture has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "typed") || strings.Contains(got, "title") {
		t.Errorf("the picture shows what no terminal shows:\n%s", got)
	}
	d := xml.NewDecoder(&picture)
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDrawRefuses(t *testing.T) {
	t.Parallel()
	for _, cast := range []string{"", "{\"version\":1}\n", "{\"version\":2,\"width\":9}\n[\"x\"]\n"} {
		if err := draw(strings.NewReader(cast), io.Discard); err == nil {
			t.Errorf("%q is accepted", cast)
		}
	}
}
