// Castsvg draws a recording of a terminal as an animated picture for the README. It reads
// asciicast, version 2, as Penstock records terminals, from standard input:
//
//	go run ./deploy/castsvg <terminal-1.cast >docs/images/batch.svg
//
// It is for output that is written line after line: colors are drawn, and other control
// sequences are left out. Where animation is not wanted or not known, all lines are seen.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

func main() {
	if err := draw(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "castsvg:", err)
		os.Exit(1)
	}
}

// A run is text of one color that appears at once.
type run struct {
	text, color string
	row, column int
	at          float64 // seconds after the beginning
}

// A screen is what a recording has shown so far.
type screen struct {
	runs        []run
	row, column int
	color       string
	width       int
}

const (
	cellWidth, cellHeight = 7.8, 17.0 // of a monospace font of 13 pixels
	margin                = 14.0
	rest                  = 4.0 // seconds that the last picture stays
	longestPause          = 1.5 // what takes longer is shown in this time
)

func draw(cast io.Reader, picture io.Writer) error {
	lines := bufio.NewScanner(cast)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return fmt.Errorf("the recording is empty: %w", io.ErrUnexpectedEOF)
	}
	var head struct{ Version, Width int }
	if err := json.Unmarshal(lines.Bytes(), &head); err != nil || head.Version != 2 {
		return fmt.Errorf("not asciicast of version 2: %q", lines.Bytes())
	}
	s := screen{width: head.Width}
	shown, before := 0.0, 0.0
	for lines.Scan() {
		var at float64
		var kind, text string
		if err := json.Unmarshal(lines.Bytes(), &[]any{&at, &kind, &text}); err != nil {
			return fmt.Errorf("%q: %w", lines.Bytes(), err)
		}
		shown += min(at-before, longestPause)
		before = at
		if kind == "o" {
			s.print(text, shown)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	_, err := picture.Write(s.picture(shown + rest))
	return err
}

// sequence is a control sequence, with its parameters and its last letter.
var sequence = regexp.MustCompile("^\x1b(?:\\[([0-9;?]*)[ -/]*([@-~])|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[ -/]*[0-~])")

func (s *screen) print(text string, at float64) {
	for text != "" {
		if m := sequence.FindStringSubmatch(text); m != nil {
			if m[2] == "m" {
				s.paint(m[1])
			}
			text = text[len(m[0]):]
			continue
		}
		c, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch {
		case c == '\n':
			s.row++
		case c == '\r':
			s.column = 0
		case c >= ' ':
			s.put(c, at)
		}
	}
}

// put writes a character where the cursor is.
func (s *screen) put(c rune, at float64) {
	if s.column == s.width {
		s.row, s.column = s.row+1, 0
	}
	if n := len(s.runs) - 1; n >= 0 && s.runs[n].follows(s.row, s.column, s.color, at) {
		s.runs[n].text += string(c)
	} else {
		s.runs = append(s.runs, run{string(c), s.color, s.row, s.column, at})
	}
	s.column++
}

func (r run) follows(row, column int, color string, at float64) bool {
	return r.row == row && r.column+utf8.RuneCountInString(r.text) == column && r.color == color && r.at == at
}

// colors are those of the parameters 30 to 37; bright ones are the same.
var colors = [8]string{"#6e7681", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#f0f6fc"}

// paint takes the parameters of a sequence that chooses a color.
func (s *screen) paint(parameters string) {
	for p := range strings.SplitSeq(parameters, ";") {
		var n int
		_, _ = fmt.Sscan(p, &n) // none is 0
		switch {
		case n == 0 || n == 39:
			s.color = ""
		case n == 2:
			s.color = "#8b949e"
		case n >= 30 && n <= 37:
			s.color = colors[n-30]
		case n >= 90 && n <= 97:
			s.color = colors[n-90]
		}
	}
}

// picture draws what was shown, over and over, each time for as many seconds.
func (s *screen) picture(seconds float64) []byte {
	var b bytes.Buffer
	width, height := float64(s.width)*cellWidth+2*margin, float64(s.row+1)*cellHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-label="A recording of a terminal">`, width, height, width, height)
	b.WriteString("\n<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre}\n")
	moment, times := map[float64]int{}, []float64{}
	for _, r := range s.runs {
		if _, known := moment[r.at]; !known && r.at > 0 {
			moment[r.at] = len(times)
			times = append(times, r.at)
		}
	}
	for n, at := range times {
		fmt.Fprintf(&b, "@keyframes k%d{0%%{opacity:0}%.2f%%{opacity:1}}.a%d{animation:k%d %.1fs step-end infinite}\n", n, 100*at/seconds, n, n, seconds)
	}
	b.WriteString("@media(prefers-reduced-motion:reduce){text{animation:none!important}}</style>\n")
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="8" fill="#0d1117"/>`+"\n", width, height)
	for _, r := range s.runs {
		if strings.TrimSpace(r.text) == "" {
			continue
		}
		var extra string
		if n, later := moment[r.at]; later {
			extra = fmt.Sprintf(` class="a%d"`, n)
		}
		if r.color != "" {
			extra += fmt.Sprintf(` style="fill:%s"`, r.color)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f"%s>%s</text>`+"\n", margin+float64(r.column)*cellWidth, margin+float64(r.row+1)*cellHeight-4, extra, html.EscapeString(r.text))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
