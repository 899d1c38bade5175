import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'
import { gameday } from '../../src/commands/break/gameday.ts'
import type { ShownGameDay } from '../../src/commands/break/gameday/view.ts'
import type { Output } from '../../src/commands/shared/arguments.ts'
import { gameDayInShort } from '../../src/routes/admin-gamedays.ts'
import { dayOf, NOW, planned, resultOf, runOf } from './gameday-day.ts'

interface Asked {
  readonly request: string
  readonly body: string
}

/** A control port whose GameDay is, look by look, each of `days`; the last one stays. */
async function control(t: TestContext, days: readonly ShownGameDay[]) {
  const asked: Asked[] = []
  let looks = 0
  const day = () => days[Math.min(looks, days.length - 1)]!
  const server = createServer((request, response) => {
    const { method = '', url = '' } = request
    let body = ''
    request.on('data', (more: Buffer) => (body += String(more)))
    request.on('end', () => {
      asked.push({ request: `${method} ${url}`, body })
      const isList = method === 'GET' && url === '/admin/gamedays'
      const answer = isList ? { gameDays: days.slice(0, 1).map(gameDayInShort) } : day()
      if (!isList) looks++
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify(answer))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.after(() => server.close())
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked }
}

/** Runs a command at the control port. */
async function told(
  t: TestContext,
  args: readonly string[],
  days: readonly ShownGameDay[] = [dayOf()],
  more: Partial<Output> = {},
) {
  const [said, wrong]: [string[], string[]] = [[], []]
  const out = {
    stdout: (line: string) => said.push(line),
    stderr: (line: string) => wrong.push(line),
    ...more,
  }
  const { url, asked } = await control(t, days)
  const name = args[0] === 'status' ? [] : ['--by', 'bob']
  const code = await gameday([...args, '--control', url, '--token', 'any', ...name], out, {})
  return { code, said, wrong: wrong.map((line) => line.replaceAll(url, 'URL')), asked }
}

/** Runs a command that needs no gateway. */
async function alone(args: readonly string[]) {
  const lines: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => lines.push(line) }
  return { code: await gameday(args, out, {}), text: lines.join('\n') }
}

const file = 'config/gamedays/first-look.yaml'

const done = { ...planned, state: 'done' as const, runs: ['r1'], result: resultOf() }
const over = dayOf({
  state: 'over',
  reason: 'all experiments were run or skipped',
  endedAt: NOW,
  steps: [
    { ...done, name: 'process-kill' },
    { ...done, name: 'drift' },
  ],
})

test('run shows a line for each change without a terminal, then the result, and exits with 0 when all passed', async (t) => {
  const begun = dayOf({ events: [{ at: NOW, what: 'begun', why: 'by bob' }] })
  const under = { ...begun, run: runOf('process-kill') }
  const { code, said, wrong, asked } = await told(t, ['run', file], [begun, under, over])
  assert.equal(code, 0)
  assert.equal(asked[0]?.request, 'POST /admin/gamedays')
  assert.match(asked[0]?.body ?? '', /"by":"bob"/)
  assert.match(wrong.join('\n'), /announce before: nobody; /)
  assert.match(wrong.join('\n'), /^breakwater: \S+ begun: by bob\nbreakwater: process-kill: stage 1 of /m)
  assert.equal(said[0], 'first-look: over after 1:00; all experiments were run or skipped')
  assert.equal(said.at(-2), 'verdicts: 2 passed')
})

test('run exits with 1 for a failed experiment, and for a GameDay that somebody stopped', async (t) => {
  const failed = {
    ...over,
    steps: [over.steps[0]!, { ...over.steps[1]!, result: resultOf({ verdict: 'failed' }) }],
  }
  assert.equal((await told(t, ['run', file], [failed])).code, 1)
  assert.equal((await told(t, ['run', file], [{ ...over, state: 'stopped' }])).code, 1)
})

test('without a terminal a pause ends the view with 1; on a terminal the view stays until the end', async (t) => {
  const paused = dayOf({ state: 'paused', reason: 'ann paused it: lunch' })
  const { code, said } = await told(t, ['run', file], [dayOf(), paused])
  assert.equal(code, 1)
  assert.match(said.at(-1) ?? '', /gameday resume first-look .* continues/)
  const shown: string[] = []
  const status: Output['status'] = (lines) => void shown.push([lines ?? []].flat().join('\n'))
  const watched = await told(t, ['run', file], [dayOf(), paused, over], { status })
  assert.equal(watched.code, 0)
  assert.match(shown.join('\n'), /paused; ann paused it: lunch/)
  assert.equal(shown.at(-1), '')
})

test('without a terminal a waiting run names the command that approves, once', async (t) => {
  const steps = [
    { ...planned, name: 'process-kill', state: 'waits for approval' as const, runs: ['run-1'] },
    { ...planned, name: 'drift' },
  ]
  const waits = dayOf({ steps, run: runOf('process-kill', { state: 'pending_approval', phase: 'waiting' }) })
  const { wrong } = await told(t, ['run', file], [waits, waits, over])
  const named = wrong.filter((line) => line.includes('experiment approve'))
  assert.deepEqual(named, [
    'breakwater: breakwater experiment approve process-kill --control URL lets process-kill begin',
  ])
})

test('run --detach only begins, and status shows the GameDay once', async (t) => {
  assert.equal((await told(t, ['run', file, '--detach'])).code, 0)
  const { code, said, asked } = await told(t, ['status'])
  assert.equal(code, 0)
  assert.match(said[0] ?? '', /^first-look: running for /)
  assert.deepEqual(
    asked.map(({ request }) => request),
    ['GET /admin/gamedays', 'GET /admin/gamedays/gd-1-00000000'],
  )
})

test('with --json, standard output is the record alone', async (t) => {
  const { said } = await told(t, ['run', file, '--json'], [dayOf(), over])
  assert.equal((JSON.parse(said.join('\n')) as ShownGameDay).state, 'over')
})

test('an order goes to the GameDay under way, with the reason, unless another is named', async (t) => {
  for (const order of ['pause', 'resume', 'skip', 'stop']) {
    const { code, asked } = await told(t, [order, '--why', 'lunch'])
    assert.equal(code, 0)
    assert.deepEqual(asked.at(-1), {
      request: `POST /admin/gamedays/gd-1-00000000/${order}`,
      body: '{"by":"bob","why":"lunch"}',
    })
  }
  const { asked } = await told(t, ['stop', 'earlier'])
  assert.deepEqual(
    asked.map(({ request }) => request),
    ['POST /admin/gamedays/earlier/stop'],
  )
})

test('without a GameDay under way an order says so, and a note goes to the last one', async (t) => {
  const { code, wrong } = await told(t, ['pause'], [over])
  assert.deepEqual([code, wrong], [1, ['breakwater: no GameDay is under way']])
  const noted = await told(t, ['note', 'seen'], [over])
  assert.deepEqual(noted.asked.at(-1), {
    request: 'POST /admin/gamedays/gd-1-00000000/observations',
    body: '{"by":"bob","text":"seen"}',
  })
})

test('an action has an owner and a date, and is closed by its number', async (t) => {
  const added = await told(t, ['action', 'alert sooner', '--owner', 'sre', '--due', '2027-01-31'])
  assert.deepEqual(added.asked.at(-1), {
    request: 'POST /admin/gamedays/gd-1-00000000/actions',
    body: '{"by":"bob","what":"alert sooner","owner":"sre","due":"2027-01-31"}',
  })
  const { asked } = await told(t, ['done', '3', '--of', 'earlier'])
  assert.equal(asked.at(-1)?.request, 'POST /admin/gamedays/earlier/actions/3/done')
})

test('wrong arguments give 2, and name the mistake', async () => {
  const mistakes = {
    'action x': /--owner is missing/,
    'action x --owner sre --due soon': /--due must be a date such as 2026-12-24/,
    'done last': /NUMBER must be the number of an action/,
    note: /TEXT is missing/,
    'pause a b': /unexpected argument "b"/,
    validte: /did you mean "?validate/,
  }
  for (const [args, words] of Object.entries(mistakes)) {
    const { code, text } = await alone(args.split(' '))
    assert.equal(code, 2, text)
    assert.match(text, words)
  }
})

test('validate names each mistake with its place, also in the files of experiments', async () => {
  assert.deepEqual(await alone(['validate', file]), {
    code: 0,
    text: `${file}: GameDay first-look, 2 experiments, 2.3m plus recoveries`,
  })
  const { code, text } = await alone(['validate', 'config/gateway.yaml'])
  assert.equal(code, 1)
  assert.match(text, /^breakwater: config\/gateway\.yaml:\d+:\d+ {2}gateway {2}unknown key/m)
})

test('the help has the exit codes', async () => {
  const { text } = await alone(['--help'])
  assert.match(text, /exit with 0 once the\s+GameDay is over and each experiment has passed or held/)
})
