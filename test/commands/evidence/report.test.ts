import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { newKey, openPrivateKey, sign } from '../../../src/approval/keys.ts'
import { faults } from '../../../src/chaos/faults/index.ts'
import { shownDocument } from '../../../src/commands/evidence/documents.ts'
import { evidence } from '../../../src/commands/evidence/evidence.ts'
import { shippedFrameworks, shippedMapping } from '../../../src/commands/evidence/mappings.ts'
import { Terminal } from '../../../src/commands/shared/terminal.ts'
import { evidenceDocument, type EvidenceReport, reportOn } from '../../../src/evidence/compliance-report.ts'
import {
  type DocumentFormat,
  documentFormats,
  type Signed,
  signedPart,
} from '../../../src/evidence/signed-document.ts'
import { indexed } from '../../evidence/runs.ts'
import { parsePeriod, type Period } from '../../../src/evidence/period.ts'
import { runKinds } from '../../../src/evidence/summary.ts'
import { version } from '../../../src/protocol/identity.ts'
import { dayMs, faultOf, summaryOn } from '../../evidence/runs.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-evidence-'))
after(() => rm(folder, { recursive: true }))

const shipped = await Promise.all((await shippedFrameworks()).map(shippedMapping))

/** One run of each kind, with 64 types of faults, and with a name that must not become markup. */
const runs = runKinds.map((kind, at) =>
  summaryOn(`${kind}-1`, `2026-10-0${at + 1}`, {
    kind,
    name: '<b>orders\u202e & search</b>',
    faults: Object.keys(faults)
      .slice(0, 64)
      .map((type) => faultOf(type)),
    verdict: at % 2 === 0 ? 'passed' : 'failed',
    rto: { promisedMs: 30_000, measuredMs: 12_000 },
  }),
)
await indexed(folder, runs)

async function run(...args: string[]) {
  const said = { stdout: '', stderr: '' }
  const screen = (name: keyof typeof said) => ({ write: (text: string) => (said[name] += text) })
  const code = await evidence(args, new Terminal(screen('stdout'), screen('stderr'), {}), {})
  return { code, ...said }
}

const period = parsePeriod('2026Q4', dayMs('2026-11-30')) as Period

test('every framework has a valid mapping that nobody has checked yet', () => {
  const names = ['basel', 'dora', 'iso-22301', 'iso-27001', 'nis2', 'pci-dss', 'soc-2']
  assert.deepEqual(
    shipped.map(({ framework }) => framework),
    names,
  )
  for (const { framework, checkedBy, asOf, requirements } of shipped) {
    assert.equal(checkedBy, null, framework)
    assert.equal(asOf, '2026-11-30', framework)
    assert.ok(requirements.length >= 4, framework)
  }
})

test('no shipped mapping refers to tests of attackers, to numbers of old editions, or to retention', () => {
  for (const { framework, title, requirements } of shipped)
    for (const { id, ref, text, limits } of requirements) {
      const all = [title, id, ref, text, ...limits].join('\n')
      assert.doesNotMatch(
        all,
        /\b11\.4|Art\. 2[67]\b|TLPT|penetration|pentest|red team/i,
        `${framework}: ${id}`,
      )
      assert.doesNotMatch(all, /27001:2013|\bA\.1[0-9]\b|retention/, `${framework}: ${id}`)
    }
})

for (const format of documentFormats)
  test(`no report on a shipped mapping claims a result, as ${format}`, async () => {
    for (const { framework } of shipped) {
      const args = ['--framework', framework, '--quarter', '2026Q4', '--state', folder, '--format', format]
      const { code, stdout, stderr } = await run('report', ...args)
      assert.deepEqual([code, stderr], [0, ''], framework)
      assert.match(stdout, /evidence that may support/, framework)
      assert.match(stdout, /Nobody has checked the mapping/, framework)
      assert.doesNotMatch(stdout, /compliant|compliance achieved|certified/i, framework)
      assert.doesNotMatch(stdout, /\b11\.4|Art\. 2[67]\b|TLPT|penetration/i, framework)
      assert.doesNotMatch(stdout, /\u202e/, framework)
      if (format === 'html') assert.doesNotMatch(stdout, /<b>orders/, framework)
    }
  })

test('each requirement of each shipped mapping is supported by some kind of run', () => {
  for (const mapping of shipped) {
    const { requirements } = reportOn(mapping, runs, {
      period,
      nowMs: dayMs('2026-11-30'),
      version,
    })
    assert.deepEqual(
      requirements.filter(({ gap }) => gap !== null).map(({ id }) => id),
      [],
    )
  }
})

test('the list of frameworks has counts, dates, and the missing check', async () => {
  const { code, stdout } = await run('frameworks')
  assert.equal(code, 0)
  for (const { framework, requirements } of shipped)
    assert.match(stdout, new RegExp(`^${framework} +${requirements.length} +2026-11-30 +nobody `, 'm'))
})

test('wrong arguments are refused in a sentence, with exit code 2', async () => {
  const dora = ['report', '--framework', 'dora']
  for (const [args, sentence] of [
    [[], 'which command: report, verify, frameworks?'],
    [['reprt'], 'unknown command "reprt"; did you mean report?'],
    [dora, '--quarter QUARTER is missing, such as 2026Q4; or give --period PERIOD'],
    [[...dora, '--quarter', '2026'], '--quarter must be a quarter such as 2026Q4, not "2026"'],
    [[...dora, '--quarter', '2026Q7'], '--quarter: a year has the quarters Q1 to Q4, not "2026Q7"'],
    [[...dora, '--period', 'soon'], '--period: expected a quarter such as 2026Q4'],
    [[...dora, '--quarter', '2026Q1', '--period', '2026'], 'give --quarter or --period, not both'],
    [['report', '--quarter', '2026Q1'], '--framework NAME is missing'],
    [
      [...dora, '--quarter', '2026Q1', '--format', 'pdf'],
      '--format must be one of md, html, json, not "pdf"',
    ],
    [['verify', 'x'], '--trust NAME=PUBLICKEY is missing'],
    [['verify', 'x', '--trust', 'short'], '--trust must be NAME=PUBLICKEY or a public key of 43 characters'],
    [['verify'], 'FILE is missing'],
  ] as const) {
    const { code, stdout, stderr } = await run(...args)
    assert.deepEqual([code, stdout], [2, ''], args.join(' '))
    assert.ok(stderr.startsWith(`breakwater evidence: ${sentence}`), stderr)
  }
})

test('an unknown framework, and an own mapping with a misspelt fault or of another framework, are refused', async () => {
  const args = ['report', '--quarter', '2026Q4', '--state', folder]
  const unknown = await run(...args, '--framework', 'dorra')
  assert.equal(unknown.code, 1)
  assert.match(unknown.stderr, /there is no mapping for "dorra"; did you mean dora\?; there are basel, dora,/)
  const text = await readFile('config/compliance/iso-22301.yaml', 'utf8')
  const [wrong, own] = [join(folder, 'wrong.yaml'), join(folder, 'own.yaml')]
  await writeFile(wrong, text.replace("faults: ['*']", 'faults: [conn.latenzy]'))
  await writeFile(own, text.replace('framework: iso-22301', 'framework: own'))
  const misspelt = await run(...args, '--mapping', wrong)
  assert.equal(misspelt.code, 1)
  assert.match(
    misspelt.stderr,
    /iso-22301-8-5-exercises: no type of fault matches "conn.latenzy"; did you mean conn\.latency\?/,
  )
  const other = await run(...args, '--mapping', own, '--framework', 'dora')
  assert.match(other.stderr, /own\.yaml is a mapping of "own", not of "dora"/)
  const right = await run(...args, '--mapping', own, '--format', 'json')
  assert.equal((JSON.parse(right.stdout) as Signed<EvidenceReport>).report.framework, 'own')
})

test('an own mapping with a mistake is refused with the line of the mistake', async () => {
  const text = await readFile('config/compliance/iso-22301.yaml', 'utf8')
  const file = join(folder, 'mistaken.yaml')
  await writeFile(file, text.replace('kinds: [gameday, guarded, scenario]', 'kinds: [gameday, gaurded]'))
  const { code, stderr } = await run('report', '--quarter', '2026Q4', '--state', folder, '--mapping', file)
  assert.equal(code, 1)
  assert.match(stderr, /mistaken\.yaml:12:24 .*kinds.*"gaurded"; did you mean "guarded"\?/)
})

const PASSPHRASE = 'a passphrase of tests'
const alice = newKey(PASSPHRASE)
const stranger = newKey(PASSPHRASE)
const aliceKey = openPrivateKey(alice.pem, PASSPHRASE)!

function signedReport(): Signed<EvidenceReport> {
  const report = reportOn(shipped[1]!, runs, { period, nowMs: dayMs('2026-11-30'), version })
  return { report, signature: sign('evidence', signedPart(report, 'alice'), aliceKey, 'alice') }
}

/** Checks a text as a file. Resolves to the exit code and the message. */
async function verified(text: string, trust = alice.publicText) {
  const file = join(folder, 'signed')
  await writeFile(file, text)
  // A key may begin with a hyphen.
  const { code, stdout, stderr } = await run('verify', file, `--trust=${trust}`)
  return { code, said: `${stdout}${stderr}`.trimEnd().replace(`${file} `, '').replace('breakwater: ', '') }
}

for (const format of documentFormats)
  test(`a signed report verifies, and a changed byte does not, as ${format}`, async () => {
    const text = shownDocument(evidenceDocument, signedReport(), format)
    const good = await verified(text)
    assert.equal(good.code, 0, good.said)
    assert.match(
      good.said,
      /^is unchanged: dora, 2026Q4, made at 2026-11-30T00:00:00\.000Z, signed by alice with key/,
    )
    assert.equal((await verified(text, stranger.publicText)).code, 1)
    assert.equal((await verified(text, `alice=${alice.publicText}`)).code, 0)
    assert.match(
      (await verified(text, `bob=${alice.publicText}`)).said,
      /by alice, and you trust the key of bob$/,
    )
    const step = Math.max(1, Math.floor(text.length / 150))
    for (let at = 0; at < text.length; at += step) {
      const changed = `${text.slice(0, at)}${text[at] === 'x' ? 'y' : 'x'}${text.slice(at + 1)}`
      assert.equal((await verified(changed)).code, 1, `${at}: ${changed.slice(at - 20, at + 20)}`)
    }
    for (const changed of [`${text}\n`, ` ${text}`, text.replaceAll('alice', 'mallory')])
      assert.equal((await verified(changed)).code, 1)
  })

test('each bit of a signature counts', async () => {
  const signed = signedReport()
  const { value } = signed.signature!
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  for (const letter of letters) {
    const changed = `${value.slice(0, -1)}${letter}`
    const text = shownDocument(
      evidenceDocument,
      { ...signed, signature: { ...signed.signature!, value: changed } },
      'json',
    )
    assert.equal((await verified(text)).code, changed === value ? 0 : 1, letter)
  }
})

test('a file that proves nothing is refused with its reason', async () => {
  const signed = signedReport()
  const text = shownDocument(evidenceDocument, { ...signed, signature: null }, 'html')
  assert.equal((await verified(text)).said, 'is not signed')
  const another = {
    ...signed,
    signature: sign('approval', signedPart(signed.report, 'alice'), aliceKey, 'alice'),
  }
  assert.match(
    (await verified(shownDocument(evidenceDocument, another, 'json'))).said,
    /^was changed: the signature does not match/,
  )
  const shown = shownDocument(evidenceDocument, signed, 'html').replace('Summary', 'Nothing')
  assert.match(
    (await verified(shown)).said,
    /^was changed: its text differs from the text of its signed data/,
  )
  assert.match((await verified('{}')).said, /^holds no report/)
  assert.match((await verified('# A page')).said, /^holds no report/)
  const missing = await run('verify', join(folder, 'missing'), `--trust=${alice.publicText}`)
  assert.equal(missing.code, 1)
  assert.match(missing.stderr, /missing cannot be read/)
})

test('a printed report is the report of its data', async () => {
  for (const format of documentFormats) {
    const args = ['--framework', 'nis2', '--quarter', '2026Q4', '--state', folder, '--format', format]
    const { stdout } = await run('report', ...args)
    assert.equal((await verified(stdout)).said, 'is not signed', format)
    const json = format === 'json' ? stdout : embedded(stdout, format)
    assert.equal(
      shownDocument(evidenceDocument, JSON.parse(json) as Signed<EvidenceReport>, format),
      stdout,
      format,
    )
  }
})

function embedded(text: string, format: DocumentFormat): string {
  const [, json = ''] =
    (format === 'html' ? /id="evidence">(.*)<\/script>/ : /```json\n(.*)\n```/).exec(text) ?? []
  return json
}

test('a report on a damaged index says so, in the report and on standard error', async () => {
  const damaged = join(folder, 'damaged')
  await indexed(damaged, runs)
  const file = join(damaged, 'runs.jsonl')
  const lines = (await readFile(file, 'utf8')).split('\n')
  await writeFile(file, [...lines.slice(0, 4), ''].join('\n'))
  const args = ['--framework', 'dora', '--quarter', '2026Q4', '--state', damaged]
  const { code, stdout, stderr } = await run('report', ...args)
  assert.equal(code, 0)
  assert.match(
    stdout,
    /^- The index of runs cannot be trusted, so runs may be missing or wrong: .*older than/m,
  )
  assert.match(stderr, /^breakwater: the index of runs is damaged: /)
})

test('bytes that only read like the report are a change', async () => {
  const signed = signedReport()
  const report = { ...signed.report, title: 'Rules \ufffd' }
  const signature = sign('evidence', signedPart(report, 'alice'), aliceKey, 'alice')
  const text = shownDocument(evidenceDocument, { report, signature }, 'json')
  assert.equal((await verified(text)).code, 0)
  const file = join(folder, 'invalid')
  const [before = '', after = ''] = text.split('\ufffd')
  await writeFile(file, Buffer.concat([Buffer.from(before), Buffer.from([0xff]), Buffer.from(after)]))
  assert.equal((await run('verify', file, `--trust=${alice.publicText}`)).code, 1)
})

test('a report says which requirements only handed-in runs support', () => {
  const [mapping] = shipped
  const { kinds } = mapping!.requirements[0]!.supports
  const one = (id: string, measuredBy: 'gateway' | 'client') =>
    summaryOn(id, '2026-10-02', {
      kind: kinds[0]!,
      measuredBy,
      faults: Object.keys(faults)
        .slice(0, 64)
        .map((type) => faultOf(type)),
    })
  const textOf = (...own: ReturnType<typeof one>[]) => {
    const making = { period, nowMs: dayMs('2026-11-30'), version }
    return shownDocument(evidenceDocument, { report: reportOn(mapping!, own, making), signature: null }, 'md')
  }
  const CLAIM = /did not measure runs that a client handed in: their figures are claims/
  const only = textOf(one('c', 'client'))
  assert.match(only, CLAIM)
  assert.match(only, /\*\*only handed in\*\*/)
  assert.match(
    only,
    /clients handed in all supporting runs of the period: the gateway measured none of these/,
  )
  assert.match(only, /last supporting run: c of 2026-10-02, handed in by a client/)
  const both = textOf(one('c', 'client'), one('g', 'gateway'))
  assert.match(both, CLAIM)
  assert.match(both, /handed in by clients, and not measured by the gateway: 1 of 2 runs/)
  assert.doesNotMatch(both, /only handed in/)
  assert.doesNotMatch(textOf(one('g', 'gateway')), /handed in/)
})
