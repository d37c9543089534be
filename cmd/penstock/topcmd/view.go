package topcmd

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs/visible"
)

// View draws the screen, of which no line is wider or longer than the terminal.
func (m *model) View() tea.View {
	lines := m.top()
	switch {
	case m.seen == nil && m.failed == nil:
		lines = append(lines, m.styled(console.Dim, "looking at the pool"))
	case m.standing != nil:
		lines = append(lines, m.explanation()...)
	case m.seen != nil:
		lines = append(lines, m.list()...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(m.height-1, 0)], m.foot())
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}

// styled is one line of text of others, made visible, cut to the terminal, in a style.
func (m *model) styled(style console.Style, text string) string {
	text = console.Cut(visible.Line(text), max(m.width, 1))
	if !m.color {
		return text
	}
	begin, end := style.Sequences()
	return begin + text + end
}

// top is what stands above each table.
func (m *model) top() []string {
	var lines []string
	if m.seen != nil {
		for _, line := range m.seen.head() {
			lines = append(lines, m.styled(console.Bold, line))
		}
	}
	if m.failed != nil {
		lines = append(lines, m.styled(console.Alert, fmt.Sprintf("the pool does not answer for %s: %v", short(time.Since(m.since)), m.failed)))
	}
	if m.seen == nil {
		return lines
	}
	names := ""
	for i, t := range m.seen.tables() {
		name := fmt.Sprintf(" %s %d ", t.name, len(t.rows))
		if i == m.at {
			name = fmt.Sprintf("[%s %d]", t.name, len(t.rows))
		}
		names += name + " "
	}
	return append(lines, m.styled(console.Cyan, names))
}

// room is how many rows of a table there is room for.
func (m *model) room() int { return max(m.height-len(m.top())-2, 1) }

// list is the table, as far as there is room, around the chosen row.
func (m *model) list() []string {
	t, rows := m.table(), m.rows()
	first := max(min(m.line-m.room()/2, len(rows)-m.room()), 0)
	shown := rows[first:min(first+m.room(), len(rows))]
	header := append([]string(nil), t.header...)
	header[m.column[m.at]] += "▾"
	widths := m.widths(header, shown)
	lines := []string{m.styled(console.Dim, "  "+join(header, widths))}
	for i, r := range shown {
		mark, style := "  ", console.Plain
		if first+i == m.line {
			mark, style = "▸ ", console.Bold
		}
		lines = append(lines, m.styled(style, mark+join(r.cells, widths)))
	}
	if len(rows) == 0 {
		lines = append(lines, m.styled(console.Dim, "  nothing"))
	}
	return lines
}

// widths are those of the columns: each as wide as its widest cell and no wider than a third
// of the terminal, but the last one, which has the rest.
func (m *model) widths(header []string, rows []row) []int {
	widths := make([]int, len(header))
	for i := range header {
		widths[i] = console.Columns(header[i])
		for _, r := range rows {
			widths[i] = max(widths[i], console.Columns(visible.Line(r.cells[i])))
		}
		if widths[i] = min(widths[i], max(m.width/3, 8)); i == len(header)-1 {
			widths[i] = m.width
		}
	}
	return widths
}

func join(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		b.WriteString(console.Pad(console.Cut(visible.Line(cell), widths[i]), widths[i]) + "  ")
	}
	return strings.TrimRight(b.String(), " ")
}

// explanation is what keeps a job in its state.
func (m *model) explanation() []string {
	s := m.standing
	text := []string{fmt.Sprintf("job %s is %s: %s (%s)", s.Job, s.State, s.Message, s.Constraint)}
	if s.Until != nil && s.Until.After(time.Now()) {
		text = append(text, "for another "+short(time.Until(*s.Until)))
	}
	text = append(text, "to change it: "+s.Change)
	var lines []string
	for _, line := range text {
		for _, part := range console.Wrap(visible.Line(line), max(m.width, 8)) {
			lines = append(lines, m.styled(console.Plain, part))
		}
	}
	return lines
}

// foot is the last line: what is asked or typed, what has happened, or the keys.
func (m *model) foot() string {
	verb := map[bool]string{false: "pause", true: "resume"}[m.resume]
	switch {
	case m.asking != "":
		return m.styled(console.Alert, fmt.Sprintf("%s queue %s? y: yes, any other key: no", verb, m.asking))
	case m.typing:
		return m.styled(console.Plain, "/"+m.filter+"▏")
	case m.notice != "":
		return m.styled(console.Alert, m.notice)
	case m.standing != nil:
		return m.styled(console.Dim, "any key: back")
	case m.filter != "":
		return m.styled(console.Dim, "only "+m.filter+" · esc: all")
	}
	return m.styled(console.Dim, "q end · tab table · / filter · s sort · enter why · p pause")
}
