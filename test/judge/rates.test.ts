import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { contract } from '../../src/judge/contract.ts'
import { ruleNames } from '../../src/judge/index.ts'
import { tasksIn } from '../../src/judge/task.ts'
import { judge } from '../../src/judge/verdicts.ts'
import { readRecording } from '../../src/sim/recording.ts'
import { cleanTasks, faultyTasks, type GeneratedTask, mistakes, promises, recordingOf } from './generator.ts'

const FAULTY = 200
const CLEAN = 400

const kinds = [{ tools: undefined, contract: contract.parse(promises) }]

/** Writes the tasks as a recording, reads the recording, and judges the tasks. */
async function judged(t: TestContext, tasks: readonly GeneratedTask[]) {
  const folder = await mkdtemp(join(tmpdir(), 'judge-'))
  t.after(() => rm(folder, { recursive: true }))
  const file = join(folder, 'calls.jsonl')
  await writeFile(file, recordingOf(tasks))
  return judge(tasksIn(await readRecording(file), kinds))
}

test('the rules are those that the generator plays', () => {
  assert.deepEqual([...ruleNames].sort(), [...mistakes].sort())
})

for (const mistake of mistakes) {
  test(`${mistake} is found in 95 % of the tasks with the mistake`, async (t) => {
    const tasks = faultyTasks(mistake, FAULTY, 7)
    const { findings, rules } = await judged(t, tasks)
    const found = new Set(findings.filter(({ rule }) => rule === mistake).map(({ task }) => task))
    const missed = tasks.filter(({ calls }) => !found.has(calls[0]!.task!)).map(({ about }) => about)
    t.diagnostic(`${mistake}: recall ${found.size / FAULTY}, proven ${rules.get(mistake)!.proven}`)
    assert.ok(found.size >= 0.95 * FAULTY, `missed: ${[...new Set(missed)].join(', ')}`)
  })
}

test('no rule proves a mistake of a clean task, and at most 1 % are likely', async (t) => {
  for (const seed of [1, 2, 3]) {
    const tasks = cleanTasks(CLEAN, seed)
    const aboutOf = new Map(tasks.map(({ calls, about }) => [calls[0]!.task!, about]))
    const { findings, rules } = await judged(t, tasks)
    const shown = findings.map(({ rule, task, level }) => `${level} ${rule}: ${aboutOf.get(task)}`)
    t.diagnostic(`seed ${seed}: ${findings.length} false findings in ${CLEAN} clean tasks`)
    for (const rule of ruleNames) {
      const { found, proven } = rules.get(rule)!
      assert.equal(proven, 0, shown.join('\n'))
      assert.ok(found <= 0.01 * CLEAN, shown.join('\n'))
    }
  }
})

test('nearly all clean tasks are decidable by every rule', async (t) => {
  const { rules, tasks } = await judged(t, cleanTasks(CLEAN, 5))
  for (const rule of ruleNames) assert.ok(rules.get(rule)!.decidable >= 0.9 * tasks, rule)
})
