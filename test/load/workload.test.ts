import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import {
  exposedName,
  kindOf,
  readWorkload,
  shippedAt,
  unknownTools,
  valuesOf,
} from '../../src/load/workload.ts'
import { createKeyedRandom } from '../../src/mesh/keyed-random.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-workload-'))
after(() => rm(folder, { recursive: true }))
let files = 0

async function written(text: string, ending = 'yaml') {
  const file = join(folder, `${files++}.${ending}`)
  await writeFile(file, text)
  return file
}

/** Returns the findings about a workload, without the folder. */
async function problems(text: string, ending?: string): Promise<readonly string[]> {
  const read = await readWorkload(await written(text, ending))
  return read.ok ? [] : read.problems.map((line) => line.replace(/^.*?\/\d+\.\w+:?/, ''))
}

async function valid(text: string) {
  const read = await readWorkload(await written(text))
  assert.ok(read.ok, read.ok ? '' : read.problems.join('\n'))
  return read
}

const small = `name: w
tasks:
  - name: one
    steps:
      - tool: a__read
`

test('the workload of the package can be read, and has its defaults', async () => {
  const read = await readWorkload(shippedAt('orders.yaml'))
  assert.ok(read.ok, read.ok ? '' : read.problems.join('\n'))
  assert.deepEqual(read.workload.eras, ['legacy', 'modern'])
  assert.equal(read.workload.arrivals, undefined)
  assert.equal(read.workload.patience, 60_000)
  assert.deepEqual(
    read.workload.tasks.map(({ name, weight, succeeds }) => [name, weight, succeeds]),
    [
      ['order', 2, 'every'],
      ['research', 1, 'every'],
    ],
  )
})

test('a workload may be JSON, with its rates and durations', async () => {
  const text = JSON.stringify({
    name: 'w',
    arrivals: '600/m',
    patience: '5s',
    tasks: [{ name: 'one', steps: [{ tool: 'a__read', think: '1.5s' }] }],
  })
  const { workload } = await valid(text)
  assert.deepEqual(workload.arrivals, { calls: 600, perMs: 60_000 })
  assert.equal(workload.patience, 5_000)
  assert.equal(workload.tasks[0]?.steps[0]?.think, 1_500)
})

test('references are no environment variables: they stay as they are', async () => {
  const { workload } = await valid(`${small}        arguments: { id: '\${task} \${n}' }\n`)
  assert.deepEqual(workload.tasks[0]?.steps[0]?.arguments, { id: '${task} ${n}' })
})

test('mistakes are reported with line and column', async () => {
  assert.deepEqual(await problems(`${small}        args: {}\n`), [
    '6:9  tasks[0].steps[0].args  unknown key "args"; allowed are server, tool, arguments, think, needs, save, expect',
  ])
  assert.deepEqual(await problems(small.replace('tool: a__read', 'tool: 7')), [
    '5:15  tasks[0].steps[0].tool  expected text, found 7; put it in quotes',
  ])
  assert.deepEqual(await problems(`arrivals: fast\n${small}`), [
    '1:11  arrivals  expected a rate above 0 and up to 1000000 calls per unit, such as 100/s, 60/m or 1000/h, found "fast"',
  ])
  assert.deepEqual(await problems('name: w\n'), ['1:1  tasks  missing; expected a list'])
  assert.match((await problems('{"name": "w" "tasks": []}', 'json'))[0] ?? '', /^1:14 {2}not valid JSON: /)
})

test('a broken reference is reported with its place', async () => {
  const found = (args: string) => problems(`${small}        arguments: { id: '${args}' }\n`)
  assert.deepEqual(await found('${values.itm}'), [
    '6:26  tasks[0].steps[0].arguments.id  there is no value "itm"',
  ])
  assert.deepEqual(await found('${steps.found.id}'), [
    '6:26  tasks[0].steps[0].arguments.id  no earlier step saved "found"',
  ])
  assert.match((await found('${HOME}'))[0] ?? '', /^6:26 {2}.*found "\$\{HOME\}"; allowed are \$\{n\}, /)
  assert.match((await found('${n'))[0] ?? '', /^6:26 {2}.*found "\$\{n";/)
})

test('a step refers to earlier steps only, and no two of a task save the same name', async () => {
  const text = `name: w
tasks:
  - name: one
    values: { item: { draw: [1] }, size: { from: 3, to: 1 } }
    succeeds: [secnd]
    steps:
      - { tool: a, needs: [second], save: first }
      - { tool: a, arguments: { x: ['\${steps.frist.id}'] }, save: second }
      - { tool: a, save: first, expect: { 'a..b': 1 } }
  - { name: one, steps: [{ tool: a }] }
`
  assert.deepEqual(await problems(text), [
    '4:57  tasks[0].values.size.to  expected 3 or more, found 1',
    '7:28  tasks[0].steps[0].needs[0]  no earlier step saved "second"',
    '8:37  tasks[0].steps[1].arguments.x[0]  no earlier step saved "frist"; did you mean "first"?',
    '9:51  tasks[0].steps[2].expect["a..b"]  is no path such as structuredContent.items[0].id',
    '9:26  tasks[0].steps[2].save  an earlier step saved "first" already',
    '5:16  tasks[0].succeeds[0]  no earlier step saved "secnd"; did you mean "second"?',
    '10:13  tasks[1].name  "one" is the name of another kind already',
  ])
})

const tools = {
  listed: new Set(['a__read', 'b__write']),
  servers: new Map([
    ['a', new Map([['read', 'a__read']])],
    ['b', new Map([['write', 'b__write']])],
  ]),
}

test('missing tools are reported with the line and a suggestion', async () => {
  const { workload, origins } = await valid(`name: w
tasks:
  - name: one
    steps:
      - tool: a__raed
      - { server: c, tool: read }
      - { server: a, tool: write }
      - { server: a, tool: read }
      - tool: b__write
`)
  assert.deepEqual(
    unknownTools(workload, origins, tools).map((line) => line.replace(/^.*?\/\d+\.yaml:/, '')),
    [
      '5:15  tasks[0].steps[0].tool  there is no tool "a__raed"; did you mean "a__read"?',
      '6:19  tasks[0].steps[1].server  there is no server "c"; there are a, b',
      '7:28  tasks[0].steps[2].tool  a has no tool "write"; there are read',
    ],
  )
  assert.equal(exposedName(workload.tasks[0]!.steps[3]!, tools), 'a__read')
})

test('kinds are drawn by weight, and values by the task: in whatever order, for the same seed', async () => {
  const { workload } = await valid(`name: w
tasks:
  - { name: often, weight: 3, steps: [{ tool: a }], values: { item: { draw: [x, y] }, size: { from: -1, to: 2 } } }
  - { name: seldom, steps: [{ tool: a }] }
`)
  const random = createKeyedRandom(7)
  const names = Array.from({ length: 4_000 }, (_, n) => `w-7-${n}`)
  const often = names.filter((task) => kindOf(workload, task, random).name === 'often')
  assert.ok(Math.abs(often.length - 3_000) < 150, `${often.length}`)
  const drawn = (seed: number) =>
    names.map((task) => valuesOf(workload.tasks[0]!, task, createKeyedRandom(seed)))
  assert.deepEqual(drawn(7), drawn(7))
  assert.notDeepEqual(drawn(7), drawn(8))
  assert.deepEqual([...new Set(drawn(7).map(({ size }) => size))].sort(), [-1, 0, 1, 2])
  assert.deepEqual([...new Set(drawn(7).map(({ item }) => item))].sort(), ['x', 'y'])
})
