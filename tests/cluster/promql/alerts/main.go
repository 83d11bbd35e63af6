// Says which alerts of a file fire, by the code of Prometheus, without one: on pages as programs serve them.
//
// It reads a Case from standard input, and writes a list of Firing. Time begins at Now: before it each target serves
// the page Healthy, after it each series goes on as between the pages First and Second.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	every  = 30 * time.Second // both scrapes and evaluations
	before = 30 * time.Minute
	after  = 90 * time.Minute
)

// Target is what Prometheus scrapes. A page that is empty was not served; Seconds are between First and Second.
type Target struct {
	Job, Instance          string
	Healthy, First, Second string
	Seconds                float64
}

// Case is a file of rules with the targets on which they are tried.
type Case struct {
	Rules   string
	Now     float64
	Targets []Target
}

// Firing is an alert that fires at the end, so many minutes after Now; or before it, where Minutes are negative.
type Firing struct {
	Alert, Summary string
	Minutes        float64
}

type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                    { return s.t }
func (s sample) ST() int64                   { return 0 }
func (s sample) F() float64                  { return s.f }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// memory is a storage of series that were all written before they are read.
type memory struct {
	series map[string]*stored
	order  []*stored
}

type stored struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func (m *memory) add(ls labels.Labels, at time.Time, f float64) {
	key := ls.String()
	if m.series[key] == nil {
		m.series[key] = &stored{labels: ls}
		m.order = append(m.order, m.series[key])
	}
	m.series[key].samples = append(m.series[key].samples, sample{at.UnixMilli(), f})
}

func (m *memory) Querier(_, _ int64) (storage.Querier, error) { return m, nil }
func (m *memory) Close() error                                { return nil }

// LabelValues and LabelNames are asked by no query.
func (m *memory) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}
func (m *memory) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}
func (m *memory) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &selected{at: -1}
	for _, s := range m.order {
		matches := true
		for _, matcher := range matchers {
			matches = matches && matcher.Matches(s.labels.Get(matcher.Name))
		}
		if matches {
			set.series = append(set.series, storage.NewListSeries(s.labels, s.samples))
		}
	}
	return set
}

type selected struct {
	series []storage.Series
	at     int
}

func (s *selected) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *selected) At() storage.Series              { return s.series[s.at] }
func (*selected) Err() error                        { return nil }
func (*selected) Warnings() annotations.Annotations { return nil }

type scraped struct {
	labels labels.Labels
	f      float64
}

// parsed is a page by the text of its series.
func parsed(page string, target Target) (map[string]scraped, error) {
	values := map[string]scraped{}
	p := textparse.NewPromParser([]byte(page), labels.NewSymbolTable(), false)
	for page != "" {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var ls labels.Labels
		_, _, f := p.Series()
		p.Labels(&ls)
		builder := labels.NewBuilder(ls).Set("job", target.Job).Set("instance", target.Instance)
		values[ls.String()] = scraped{builder.Labels(), f}
	}
	return values, nil
}

func (m *memory) scrape(target Target, now time.Time) error {
	var pages [3]map[string]scraped
	for i, page := range []string{target.Healthy, target.First, target.Second} {
		var err error
		if pages[i], err = parsed(page, target); err != nil {
			return fmt.Errorf("%s: %w", target.Job, err)
		}
	}
	up := labels.FromStrings("__name__", "up", "job", target.Job, "instance", target.Instance)
	last := map[string]scraped{}
	for at := now.Add(-before); !at.After(now.Add(after)); at = at.Add(every) {
		page, text, past := pages[0], target.Healthy, at.Sub(now).Seconds()
		if past >= 0 {
			page, text = pages[2], target.Second
		}
		for name, gone := range last {
			if _, there := page[name]; !there {
				m.add(gone.labels, at, math.Float64frombits(value.StaleNaN))
			}
		}
		for name, v := range page {
			f := v.f
			if first, there := pages[1][name]; past >= 0 && there && !math.IsNaN(f) {
				f += (v.f - first.f) / target.Seconds * past
			}
			m.add(v.labels, at, f)
		}
		last = page
		reached := 0.0
		if text != "" {
			reached = 1
		}
		m.add(up, at, reached)
	}
	return nil
}

// fires says since when each alert of a rule fires without a break up to the end, and which do before the time.
func fires(rule rulefmt.Rule, m *memory, engine *promql.Engine, now time.Time) (found []Firing, err error) {
	ctx := context.Background()
	pending := map[string]time.Time{}
	early := false
	for at := now.Add(-before); !at.After(now.Add(after)); at = at.Add(every) {
		query, err := engine.NewInstantQuery(ctx, m, nil, rule.Expr, at)
		if err != nil {
			return nil, err
		}
		result := query.Exec(ctx)
		vector, err := result.Vector()
		if err != nil {
			return nil, err
		}
		there := map[string]time.Time{}
		found = nil
		for _, s := range vector {
			key := s.Metric.String()
			there[key] = at
			if old, was := pending[key]; was {
				there[key] = old
			}
			since := there[key]
			if at.Sub(since) < time.Duration(rule.For) {
				continue
			}
			early = early || at.Before(now)
			data := template.AlertTemplateData(s.Metric.Map(), nil, "", s)
			text := "{{$labels := .Labels}}{{$value := .Value}}" + rule.Annotations["summary"]
			expander := template.NewTemplateExpander(ctx, text, rule.Alert, data, model.TimeFromUnix(at.Unix()), nil, nil, nil)
			summary, err := expander.Expand()
			if err != nil {
				return nil, err
			}
			found = append(found, Firing{rule.Alert, summary, since.Add(time.Duration(rule.For)).Sub(now).Minutes()})
		}
		pending = there
		query.Close()
	}
	if early {
		found = append(found, Firing{rule.Alert, "fires before it should", -1})
	}
	return found, nil
}

func run() error {
	var given Case
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return err
	}
	prometheus := parser.NewParser(parser.Options{})
	groups, problems := rulefmt.Parse([]byte(given.Rules), false, model.UTF8Validation, prometheus, slog.Default())
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	now := time.UnixMilli(int64(given.Now * 1000))
	m := &memory{series: map[string]*stored{}}
	for _, target := range given.Targets {
		if err := m.scrape(target, now); err != nil {
			return err
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, Parser: prometheus})
	all := []Firing{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			found, err := fires(rule, m, engine, now)
			if err != nil {
				return fmt.Errorf("%s: %w", rule.Alert, err)
			}
			all = append(all, found...)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
