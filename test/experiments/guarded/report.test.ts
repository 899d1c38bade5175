import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Script } from 'node:vm'
import { markdownBlock } from '../../../src/experiments/blocks.ts'
import type { ApproverProof, RunRecord } from '../../../src/experiments/guarded/record.ts'
import { runHtmlOf } from '../../../src/experiments/guarded/report-html.ts'
import { runScript } from '../../../src/console/run-charts.ts'
import { runMarkdownOf } from '../../../src/experiments/guarded/report.ts'
import { specOf, stage } from './world.ts'

/** A run aborted by its gate, as the admin API returns the run: unknown fields are absent. */
async function aborted(more: object = {}): Promise<RunRecord> {
  const { lifecycle, rules, until } = stage(
    specOf({ estimate: { outcome: 'completed', recover: '5s' }, ...more }),
  )
  lifecycle.begin()
  await until('stage', 1)
  rules.fares.treatment.failing = 1
  lifecycle.noticed('breaker a/t open')
  return JSON.parse(JSON.stringify(await until('over'))) as RunRecord
}

test('a report names the people, the experiment, the reason of its end, the result and the expectation', async () => {
  const text = runMarkdownOf(await aborted({ title: 'A drill' }))
  for (const part of [
    /^# Guarded experiment drill$/m,
    /^\*\*aborted: error_ratio of treatment was .* above 10%\.\*\*$/m,
    /^- requested by tester at /m,
    /^\| error_ratio < 1% \| 0% \| yes \|$/m,
    /^\| broken \| rpc\.error \| \d+ \| [1-9]\d* \|$/m,
    /^The gate was breached: /m,
    /^\| 25%: treatment \| \d+ \| 0% /m,
    /^The steady state was back \d.* after the first effect, and 0ms after the end of the faults\.$/m,
    /^Noticed .* by breaker a\/t open\.$/m,
    /^Nothing of the run is armed, and no call is in its arms/m,
    /^\| outcome \| completed \| aborted \| no \|$/m,
    /^- run run-1, shape shape, seed 0$/m,
  ])
    assert.match(text, part)
})

test('the page says the same, loads nothing, and escapes what others wrote', async () => {
  const evil = '</script><img src=x onerror=alert(1)>'
  const page = runHtmlOf(await aborted({ title: evil, reason: evil, owner: evil }))
  assert.ok(!page.includes('<img'), 'the text holds no markup')
  assert.match(page, /Content-Security-Policy" content="default-src &#39;none&#39;;/)
  assert.doesNotMatch(page, /(src|href)="?https?:/)
  assert.match(page, /<span class="badge">aborted<\/span>/)
  const data = /<script type="application\/json" id="chart-data">(.*)<\/script>/.exec(page)?.[1] ?? ''
  const { at, arms, marks } = JSON.parse(data) as {
    at: number[]
    marks: { text: string }[]
    arms: { name: string; p95: (number | null)[] }[]
  }
  assert.deepEqual(
    arms.map(({ name, p95 }) => [name, p95.length === at.length]),
    [
      ['in no arm', true],
      ['control', true],
      ['treatment', true],
    ],
  )
  assert.deepEqual(
    marks.map(({ text }) => text),
    ['25 %', '50 %', 'rolled back'],
  )
})

test('nothing that others wrote is Markdown', () => {
  const evil = 'x\n\n# Approved\n\n<script>a</script> ![i](http://x) \\<b> **so** `c`\u0007 &lt; 1. y'
  const spec = specOf({ reason: evil, arms: { treatment: evil.slice(0, 60) } })
  const { lifecycle } = stage(
    { ...spec, title: `# ${evil}`, owner: evil, hypothesis: { ...spec.hypothesis, title: '1. > y' } },
    { reason: evil, actor: evil, approver: evil, traces: [evil] },
  )
  const text = runMarkdownOf(lifecycle.record)
  assert.deepEqual(
    text.split('\n').filter((line) => line.startsWith('#') && !line.startsWith('## ')),
    ['# Guarded experiment drill'],
  )
  assert.ok(!text.includes('\u0007'))
  // An odd number of backslashes escapes the next character.
  assert.doesNotMatch(text, /(?<!\\)(?:\\\\)*(?:<[a-z/]|!\[|&lt;|`)/)
  assert.match(text, /^\\# x # Approved \\<script>/m)
  assert.match(text, /^- owner: x # Approved /m)
  assert.match(text, /^1\\\. > y$/m)
  assert.match(text, /^\*\*running: x # Approved .* 1\. y\.\*\*$/m)
})

test('text in a table is no markup, with or without backslashes before', () => {
  const table = { head: ['a'], rows: [['\\<b> \\| \\\\| c:\\x']], numbers: 1 }
  assert.match(markdownBlock({ table }), /^\| \\\\\\<b> \\\\\\\| \\\\\\\\\\\| c:\\x \|$/m)
  const image = { head: ['a'], rows: [['![x](https://x.example) \\[y](z) `code`']], numbers: 1 }
  assert.match(
    markdownBlock({ table: image }),
    /^\| !\\\[x\]\(https:\/\/x\.example\) \\\\\\\[y\]\(z\) \\`code\\` \|$/m,
  )
})

test('a script draws the charts', () => {
  assert.doesNotThrow(() => new Script(runScript))
})

test('a run that has not begun has a report as well', () => {
  const { lifecycle } = stage(specOf(), { state: 'pending_approval', reason: 'it waits' })
  assert.match(runMarkdownOf(lifecycle.record), /^\*\*pending approval: it waits\.\*\*$/m)
  assert.match(runHtmlOf(lifecycle.record), /Nothing was put into force/)
})

test('a report names an approver who also requested the run', () => {
  const approved = (proof: ApproverProof) =>
    runMarkdownOf(stage(specOf(), { approver: 'tester', proof }).lifecycle.record)
  assert.match(approved({ proved: 'key', self: true }), /approved by tester, the requester$/m)
  assert.match(approved({ proved: 'key' }), /approved by tester$/m)
})

test('a report claims a held gate only after all stages', async () => {
  const told = async (how: (of: ReturnType<typeof stage>) => unknown) => {
    const made = stage()
    made.lifecycle.begin()
    await how(made)
    return runMarkdownOf(await made.until('over'))
  }
  assert.match(
    await told(() => undefined),
    /^The gate held; nearest to a limit: error_ratio of treatment was 0% over \d+ calls, with 10% allowed\. Measured over 1s/m,
  )
  assert.match(
    await told(({ lifecycle }) => lifecycle.stop('me', 'enough')),
    /^The gate was never checked: no stage/m,
  )
  const cutShort = await told(({ lifecycle, until }) =>
    until('stage').then(() => lifecycle.stop('me', 'enough')),
  )
  assert.match(cutShort, /^The gate was not breached while stages were played\. /m)
})

test('a report of a run whose gateway was killed says what its figures are', async () => {
  const run = await aborted()
  const text = runMarkdownOf({ ...run, rollback: { ...run.rollback!, atMs: undefined, tookMs: undefined } })
  assert.match(text, /^These counts were last written/m)
  assert.match(text, /checked at the next start of the gateway/)
})
