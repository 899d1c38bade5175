import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { main } from '../../support/main.ts'
import { noTerminal, TerminalProgram } from '../../support/pseudo-terminal.ts'
import { screenOf } from '../../support/screen.ts'
import { until } from '../../support/until.ts'
import { cleanUp, type Gateway, type Json } from '../support/gateway.ts'
import { Program } from '../support/program.ts'
import { specOf, started, traffic } from './scene.ts'

after(cleanUp)

/** The stage is long, so that a command started in the stage also comes in the stage. */
const plan = {
  name: 'exercise',
  title: 'An exercise',
  roles: { lead: 'tester' },
  hypothesis: 'Slow calls come late, but they come.',
  scope: { servers: ['flaky'], environment: 'staging' },
  rto: '1m',
  communication: { before: '#tests, a moment before' },
  experiments: [
    {
      spec: specOf({
        name: 'slow',
        faults: [
          { name: 'slow', type: 'conn.latency', rate: 0.5, distribution: { kind: 'fixed', delay: '50ms' } },
        ],
        stages: [{ share: '25%', duration: '15s' }],
        hypothesis: { steadyState: ['error_ratio < 10%', 'p95 < 5s'] },
      }),
    },
  ],
}

interface Day {
  readonly state: string
  readonly steps: readonly {
    readonly runs: readonly string[]
    readonly result?: { readonly verdict: string }
  }[]
  readonly observations: readonly { readonly step?: string; readonly text: string }[]
  readonly actions: readonly { readonly owner: string; readonly done?: Json }[]
  readonly run?: { readonly id: string; readonly phase: string }
}

const dayAt = async (gateway: Gateway) => (await gateway.admin<Day>('/admin/gamedays/exercise')).body

/** Waits until the run with this number, from 1, is in its stage. */
const inStage = (gateway: Gateway, run: number) =>
  until(
    `run ${run} is in its stage`,
    async () => {
      const { status, body } = await gateway.admin<Day>('/admin/gamedays/exercise')
      return status === 200 && body.steps[0]?.runs.length === run && body.run?.phase === 'stage'
    },
    60_000,
  )

const armedFaults = async (gateway: Gateway) =>
  (await gateway.admin<{ faults: readonly { name: string; armed: boolean }[] }>('/admin/chaos')).body.faults
    .filter(({ armed }) => armed)
    .map(({ name }) => name)

test(
  'a person begins a GameDay, pauses it in a stage, which clears its faults, resumes, notes, and sees it pass',
  { skip: noTerminal ?? false },
  async () => {
    const { gateway, folder } = await started()
    const agents = await traffic(gateway)
    const file = join(folder, 'exercise.json')
    await writeFile(file, JSON.stringify(plan))
    const env = { XDG_RUNTIME_DIR: folder }
    const args = (...given: string[]) => [
      main,
      'gameday',
      ...given,
      '--control',
      gateway.control,
      '--by',
      'tester',
    ]
    const told = async (...given: string[]) => {
      const program = new Program(args(...given), { env })
      const { code } = await program.ended
      return { code, text: program.lines.join('\n') }
    }

    const planned = await told('plan', file)
    assert.equal(planned.code, 0, planned.text)
    assert.match(planned.text, /^announce before: #tests, a moment before$/m)
    assert.match(planned.text, /^stops on: a new incident of a server outside of flaky$/m)

    const view = new TerminalProgram(args('run', file), { env })
    await inStage(gateway, 1)
    // The phase says `stage` while the journal is being written, before the faults are armed.
    await until('faults are armed', async () => (await armedFaults(gateway)).length > 0)
    await view.says(/slow +stage 1 of 1: 25%/)
    const paused = await told('pause', '--why', 'a real incident')
    assert.equal(paused.code, 0, paused.text)
    assert.deepEqual(await armedFaults(gateway), [])
    await view.says(/exercise: paused; tester paused it: a real incident/)
    await view.says(/gameday resume exercise \S+ \S+ continues/)

    assert.equal((await told('resume')).code, 0)
    await inStage(gateway, 2)
    assert.match((await told('note', 'the agents noticed nothing')).text, /^exercise: noted during slow$/)
    await view.says(/tester: the agents noticed nothing/)
    assert.match(
      (await told('action', 'alert sooner', '--owner', 'sre')).text,
      /^exercise: action 1, for sre$/,
    )
    assert.match((await told('done', '1')).text, /^exercise: action 1 is done; open: 0$/)

    const other = new TerminalProgram([main, 'gameday', 'status', '--follow', '--control', gateway.control], {
      env,
    })
    await other.says(/exercise: running for/)
    assert.equal(await other.interrupt(), 1)
    await other.says(/the GameDay exercise goes on at the gateway/)
    await other.says(/breakwater gameday pause --control \S+ +clears its faults and waits/)

    assert.equal(await view.ended, 0, view.raw)
    const lines = screenOf(view.raw)
    const at = lines.findIndex((line) => line.startsWith('exercise: '))
    assert.match(lines.slice(0, at).join('\n'), /^breakwater: GameDay \S+ has begun\n.*announce before: /)
    assert.match(
      lines
        .slice(at)
        .map((line) => line.replace(/\u001b\[\d+m/g, ''))
        .join('\n'),
      /^exercise: over after .*\nEXPERIMENT .*\nslow +completed +passed +\S+, promised 60s\n\S+ tester: the agents noticed nothing\nverdicts: 1 passed\nrecovery: .*\naction 1 \(done\): alert sooner, sre$/,
    )
    const day = await dayAt(gateway)
    assert.deepEqual(
      [day.state, day.steps[0]?.runs.length, day.steps[0]?.result?.verdict, day.observations[0]?.step],
      ['over', 2, 'passed', 'slow'],
    )
    await agents.stop()
  },
)
