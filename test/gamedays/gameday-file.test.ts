import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { readGameDay } from '../../src/gateway/gameday-file.ts'

const HEAD = `name: day
title: A day
roles: { lead: ops }
hypothesis: Agents get answers.
scope: { servers: [a] }
`

const experiment = (name: string, more = '') => `name: ${name}
owner: tests
reason: to see
hypothesis: { steadyState: ['error_ratio < 1%'] }
targets: { server: a }
faults: [{ name: broken, type: rpc.error, rate: 1 }]
gate: { rollbackOn: [{ metric: error_ratio, above: 10% }] }
${more}`

/** Writes files into a new folder. Returns a function that reads its GameDay `day.yaml`. */
async function folder(context: TestContext, files: Readonly<Record<string, string>>) {
  const path = await mkdtemp(join(tmpdir(), 'gameday-file-'))
  context.after(() => rm(path, { recursive: true }))
  for (const [name, text] of Object.entries(files)) await writeFile(join(path, name), text)
  const problems = async () => {
    const read = await readGameDay(join(path, 'day.yaml'))
    return read.ok ? [] : read.problems.map((problem) => problem.replaceAll(`${path}/`, ''))
  }
  return { path, problems }
}

const day = (...steps: string[]) => `${HEAD}experiments:\n${steps.map((step) => `  - ${step}\n`).join('')}`

test('experiments come from files beside the GameDay', async (context) => {
  const { path, problems } = await folder(context, {
    'day.yaml': day('file: one.yaml', '{ file: ./two.yaml, after: 5m }'),
    'one.yaml': experiment('one'),
    'two.yaml': experiment('two'),
  })
  assert.deepEqual(await problems(), [])
  const read = await readGameDay(join(path, 'day.yaml'))
  assert.ok(read.ok)
  assert.deepEqual(
    read.plan.experiments.map(({ spec: { name }, after }) => [name, after]),
    [
      ['one', 0],
      ['two', 300_000],
    ],
  )
})

test('a problem of an experiment names the file and the line of the experiment', async (context) => {
  const { problems } = await folder(context, {
    'day.yaml': day('file: one.yaml', 'file: two.yaml', 'file: three.yaml'),
    'one.yaml': experiment('one', 'stages: [{ share: 99%, duration: 10s }]\n'),
    'two.yaml': experiment('two', '\nunknown: 1\n'),
    'three.yaml': 'name: [\n',
  })
  const found = await problems()
  assert.match(found[0]!, /^one\.yaml:8:\d+\b.*stages\[0\]\.share/)
  assert.match(found[1]!, /^two\.yaml:9:\d+\b.*unknown/)
  assert.match(found[2]!, /^three\.yaml:\d+:\d+\b/)
})

test('a problem of the GameDay itself names its own file and line', async (context) => {
  const { problems } = await folder(context, {
    'day.yaml': day('file: one.yaml', '{ file: two.yaml, after: 25h }').replace('title: A day', 'title: 7'),
    'one.yaml': experiment('one'),
    'two.yaml': experiment('two'),
  })
  const found = await problems()
  assert.match(found[0]!, /^day\.yaml:2:\d+\b.*title/)
  assert.match(found[1]!, /^day\.yaml:8:\d+\b.*experiments\[1\]\.after/)
})

test('an experiment is either written in the GameDay or in a file', async (context) => {
  const { problems } = await folder(context, {
    'day.yaml': day('{ file: one.yaml, spec: { name: other } }'),
    'one.yaml': experiment('one'),
  })
  assert.deepEqual(await problems(), [
    'day.yaml:7:5  experiments[0]  has both `file` and `spec`: leave one of them out',
  ])
})

test('the same experiment twice is refused at its second place', async (context) => {
  const { problems } = await folder(context, {
    'day.yaml': day('file: one.yaml', 'file: one.yaml'),
    'one.yaml': experiment('one'),
  })
  const found = await problems()
  assert.equal(found.length, 1)
  assert.match(found[0]!, /^day\.yaml:8:5\b.*there is an experiment "one" in this GameDay already/)
})

test('loops of links, folders, missing files and the GameDay itself are no experiments', async (context) => {
  const { path, problems } = await folder(context, {
    'day.yaml': day('file: loop.yaml', 'file: sub', 'file: none.yaml', 'file: day.yaml', 'file: /dev/zero'),
  })
  await symlink(join(path, 'loop.yaml'), join(path, 'loop.yaml'))
  await mkdir(join(path, 'sub'))
  const found = (await problems()).join('\n')
  assert.match(found, /^loop\.yaml\b.*its links lead in a circle$/m)
  assert.match(found, /^sub\b.*it is a folder$/m)
  assert.match(found, /^none\.yaml\b.*no such file$/m)
  assert.match(found, /^day\.yaml:\d+:\d+.*\bhypothesis/m)
  assert.match(found, /^\/dev\/zero\b.*it is no regular file$/m)
})

test('more experiments than a GameDay may have are a problem of the GameDay', async (context) => {
  const names = Array.from({ length: 40 }, (_, at) => `e${at}`)
  const { problems } = await folder(context, {
    'day.yaml': day(...names.map((name) => `file: ${name}.yaml`)),
    ...Object.fromEntries(names.map((name) => [`${name}.yaml`, experiment(name)])),
  })
  const found = await problems()
  assert.equal(found.length, 1)
  assert.match(found[0]!, /^day\.yaml:6:\d+\b.*experiments.*32/)
})

test('aliases that unfold to billions of values are refused, in the GameDay and in an experiment', async (context) => {
  const bomb = [
    'a0: &a0 [x]',
    ...Array.from({ length: 30 }, (_, at) => `a${at + 1}: &a${at + 1} [*a${at}, *a${at}]`),
  ]
  const { problems } = await folder(context, {
    'day.yaml': day('file: one.yaml'),
    'one.yaml': bomb.join('\n'),
  })
  assert.match((await problems()).join('\n'), /^one\.yaml.*(all aliases expanded|nested)/m)
  const own = await folder(context, { 'day.yaml': `${bomb.join('\n')}\n${HEAD}` })
  assert.match((await own.problems()).join('\n'), /^day\.yaml.*(all aliases expanded|nested)/m)
})
