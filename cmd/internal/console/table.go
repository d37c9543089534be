package console

import (
	"io"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs/visible"
)

// narrow is the least width of a cell when a table is cut to its terminal. A wider
// table is shown as records.
const narrow = 8

// Table writes rows below their headers. On a terminal it is as wide as that: the
// widest columns are cut first, and a table of too many columns becomes a record
// for each row. Elsewhere nothing is cut.
func Table(w io.Writer, header []string, rows [][]string) error {
	width := 0
	if screen, ok := w.(*Writer); ok {
		width = screen.Width()
	}
	cells := make([][]string, 0, len(rows)+1)
	for _, row := range append([][]string{header}, rows...) {
		shown := make([]string, len(row))
		for i, cell := range row {
			shown[i] = visible.Line(cell)
		}
		cells = append(cells, shown)
	}
	text := ""
	if widths, ok := fit(cells, width); ok {
		text = table(cells, widths)
	} else {
		text = records(cells, width)
	}
	_, err := io.WriteString(w, text)
	return err
}

// gap is between two columns.
const gap = "  "

// fit finds the widths of the columns; 0 for width is no limit.
func fit(cells [][]string, width int) (widths []int, ok bool) {
	for _, row := range cells {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Columns(cell))
		}
	}
	if width == 0 {
		return widths, true
	}
	for over := sum(widths) + len(gap)*(len(widths)-1) - width; over > 0; over-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= narrow {
			return nil, false
		}
		widths[widest]--
	}
	return widths, true
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

func table(cells [][]string, widths []int) string {
	var b strings.Builder
	for _, row := range cells {
		for i, cell := range row {
			if cell = Cut(cell, widths[i]); i < len(row)-1 {
				cell = Pad(cell, widths[i]) + gap
			}
			b.WriteString(cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// records writes each row as lines of a name and a value. The values are
// indented: their first column is not the terminal's.
func records(cells [][]string, width int) string {
	var b strings.Builder
	most := 0
	for _, name := range cells[0] {
		most = max(most, Columns(name))
	}
	for n, row := range cells[1:] {
		if n > 0 {
			b.WriteByte('\n')
		}
		for i, cell := range row {
			if cell == "" {
				continue
			}
			lead := Pad(cells[0][i], most) + gap
			for _, part := range Wrap(cell, max(width-most-len(gap), narrow)) {
				b.WriteString(strings.TrimRight(lead+part, " ") + "\n")
				lead = strings.Repeat(" ", most) + gap
			}
		}
	}
	return b.String()
}
