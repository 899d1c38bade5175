import { readFile } from 'node:fs/promises'
import { isSignedWith, keyIdOf, publicKeySchema, readPublicKey } from '../../approval/keys.ts'
import type { Env } from '../../config/files/interpolate.ts'
import type { ComplianceMapping } from '../../evidence/compliance.ts'
import {
  dataIn,
  renderings,
  type ReportFormat,
  reportFormats,
  reportOn,
  signedPart,
  type SignedReport,
  signedReport,
} from '../../evidence/compliance-report.ts'
import { systemClock } from '../../mesh/clock.ts'
import { parseJson } from '../../protocol/jsonrpc.ts'
import { version } from '../../protocol/identity.ts'
import { printable, printablePainted } from '../../telemetry/printable.ts'
import { openSigner } from '../agents/signer.ts'
import {
  Misuse,
  optionLines,
  optionsOf,
  type Output,
  runCommand,
  unknownCommand,
  UnusableInput,
  type Values,
} from '../shared/arguments.ts'
import { table } from '../shared/table.ts'
import { mappingAt, shippedFrameworks, shippedMapping } from './mappings.ts'
import { periodIn, periodOptions, storedRuns, storedRunsOptions } from './stored-runs.ts'

const reportOptions = {
  framework: { kind: 'text', value: 'NAME', about: 'a mapping of `breakwater evidence frameworks`' },
  mapping: { kind: 'text', value: 'FILE', about: 'your own mapping, instead of a shipped one' },
  ...periodOptions,
  format: {
    kind: 'choice',
    of: reportFormats,
    value: 'FORMAT',
    default: 'md',
    about: 'md, html or json; each contains the data as JSON',
  },
  ...storedRunsOptions,
  key: {
    kind: 'text',
    value: 'FILE',
    about: 'signs the report with your key, from `breakwater key new`; asks for its passphrase',
  },
} as const

const verifyOptions = {
  trust: {
    kind: 'text',
    value: 'NAME=PUBLICKEY',
    about: 'name and public key of the signer, as `breakwater key new` prints both; or the key alone',
  },
} as const

const usage = `breakwater evidence: reports on stored runs, as evidence that may support requirements of a framework

  breakwater evidence report        prints the runs of a period for each requirement, with gaps and due dates
  breakwater evidence verify FILE   checks that nobody changed a signed report, in any of its formats
  breakwater evidence frameworks    lists the shipped mappings

${optionLines(optionsOf({ report: { options: reportOptions }, verify: { options: verifyOptions } }))}

  Exit codes: 0; 1 when no report can be made, or for a report that is changed or not signed with the key; 2 for wrong
  arguments.`

/** Largest file that `verify` reads, in bytes. */
const REPORT_BYTES = 100_000_000

/** `breakwater evidence …`: resolves to the exit code; 2 for wrong arguments. */
export function evidence(args: readonly string[], out: Output, env: Env): Promise<number> {
  const [name = '', ...rest] = args
  switch (name) {
    case 'report':
      return runCommand(rest, { usage, options: reportOptions, positionals: [] }, out, (values) =>
        report(values, out, env),
      )
    case 'verify':
      return runCommand(
        rest,
        { usage, options: verifyOptions, positionals: ['FILE'] },
        out,
        (values, [file = '']) => verify(file, values, out),
      )
    case 'frameworks':
      return runCommand(rest, { usage, options: {}, positionals: [] }, out, () => frameworks(out))
    default: {
      const own = ['help', '--help', '-h'].includes(name) ? ['--help'] : []
      return runCommand(own, { usage, options: {} }, out, () => {
        throw new Misuse(unknownCommand(name, ['report', 'verify', 'frameworks']))
      })
    }
  }
}

async function report(values: Values<typeof reportOptions>, out: Output, env: Env): Promise<number> {
  const nowMs = systemClock.wall()
  const period = periodIn(values, nowMs)
  if (period === undefined)
    throw new Misuse('--quarter QUARTER is missing, such as 2026Q4; or give --period PERIOD')
  const mapping = await mappingIn(values)
  const { runs, problems } = await storedRuns(values, { env, out })
  const made = reportOn(mapping, runs, { period, nowMs, version, problems })
  const signer = values.key === undefined ? undefined : await openSigner(values.key, out)
  const signature = signer?.sign('evidence', signedPart(made, signer.by)) ?? null
  out.stdout(renderedReport({ report: made, signature }, values.format as ReportFormat).trimEnd())
  if (signature !== null)
    out.stderr(`breakwater: signed by ${signature.by} with key ${signature.keyId}: ${signature.value}`)
  return 0
}

/** Rejects with a `Misuse` or an `UnusableInput`. */
async function mappingIn({ framework, mapping }: Values<typeof reportOptions>): Promise<ComplianceMapping> {
  if (mapping === undefined) {
    if (framework !== undefined) return shippedMapping(framework)
    throw new Misuse(
      '--framework NAME is missing; see `breakwater evidence frameworks`, or give --mapping FILE',
    )
  }
  const read = await mappingAt(mapping)
  if (framework !== undefined && framework !== read.framework)
    throw new UnusableInput(`${mapping} is a mapping of "${read.framework}", not of "${framework}"`)
  return read
}

/** Returns a report as the terminal shows it: a file with the report verifies, whichever way it was written. */
export const renderedReport = (signed: SignedReport, format: ReportFormat): string =>
  renderings[format](signed)
    .split('\n')
    .map((line) => printable(line, Infinity))
    .join('\n')

async function verify(file: string, { trust }: Values<typeof verifyOptions>, out: Output): Promise<number> {
  if (trust === undefined) throw new Misuse('--trust NAME=PUBLICKEY is missing')
  const [, name, publicText = ''] = /^(?:([\w.-]{1,64})=)?(.*)$/.exec(trust) ?? []
  const key = readPublicKey(publicText)
  if (key === undefined || !publicKeySchema.safeParse(publicText).success)
    throw new Misuse(
      '--trust must be NAME=PUBLICKEY or a public key of 43 characters, as `breakwater key new` prints',
    )
  const bytes = await readFile(file).catch((error: Error) => {
    throw new UnusableInput(`${file} cannot be read: ${error.message}`)
  })
  if (bytes.length > REPORT_BYTES)
    throw new UnusableInput(`${file} is larger than ${REPORT_BYTES / 1e6} MB, and so no report`)
  const text = bytes.toString()
  const data = dataIn(text)
  const read = data && signedReport.safeParse(parseJson(data.json))
  if (read?.data === undefined)
    throw new UnusableInput(`${file} holds no report of \`breakwater evidence report\`, or a changed report`)
  const { report, signature } = read.data
  if (signature === null) throw new UnusableInput(`${file} is not signed`)
  const { by, keyId, value } = signature
  if (keyId !== keyIdOf(publicText))
    throw new UnusableInput(
      `${file} is signed with the key ${keyId}, and you trust the key ${keyIdOf(publicText)}`,
    )
  if (name !== undefined && name !== by)
    throw new UnusableInput(`${file} is signed by ${printable(by)}, and you trust the key of ${name}`)
  const isWhole = Buffer.from(value, 'base64url').toString('base64url') === value
  if (!isWhole || !isSignedWith('evidence', signedPart(report, by), signature, key))
    throw new UnusableInput(`${file} was changed: the signature does not match`)
  // Different bytes may read as the same text: those of invalid UTF-8.
  const rendered = renderedReport(read.data, data!.format)
  if (![rendered, rendered.replace(/\n$/, '')].some((one) => Buffer.from(one).equals(bytes)))
    throw new UnusableInput(
      report.version === version
        ? `${file} was changed: its text differs from the text of its signed data`
        : `the signed data in ${file} is unchanged, but its text differs from the text by Breakwater ${version}; verify with ${report.version}`,
    )
  const { framework, period, madeAt } = report
  out.stdout(
    printablePainted(
      `${file} is unchanged: ${framework}, ${period.name}, made at ${madeAt}, signed by ${by} with key ${keyId}`,
    ),
  )
  return 0
}

async function frameworks(out: Output): Promise<number> {
  const names = await shippedFrameworks()
  const mappings = await Promise.all(names.map(shippedMapping))
  const rows = mappings.map(({ framework, title, requirements, asOf, checkedBy }) => [
    framework,
    requirements.length,
    asOf,
    checkedBy ?? 'nobody',
    title,
  ])
  const head = ['FRAMEWORK', 'REQUIREMENTS', 'AS OF', 'CHECKED BY', 'TITLE']
  for (const line of table(head, rows, out.width ?? Infinity, out.paint)) out.stdout(line)
  return 0
}
