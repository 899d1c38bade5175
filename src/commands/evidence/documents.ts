import { readFile } from 'node:fs/promises'
import { isSignedWith, keyIdOf, publicKeySchema, readPublicKey } from '../../approval/keys.ts'
import { evidenceDocument } from '../../evidence/compliance-report.ts'
import {
  dataIn,
  type DocumentFormat,
  documentFormats,
  documentIn,
  type DocumentKind,
  rendered,
  type Signed,
  signedPart,
} from '../../evidence/signed-document.ts'
import { gameDayDocument } from '../../gamedays/report-html.ts'
import { parseJson } from '../../protocol/jsonrpc.ts'
import { version } from '../../protocol/identity.ts'
import { printable, printablePainted } from '../../telemetry/printable.ts'
import { openSigner } from '../agents/signer.ts'
import { Misuse, type Output, UnusableInput } from '../shared/arguments.ts'

/** Prints reports as documents that a person may sign, and verifies such documents. */

/** The options of commands that print a report. */
export const documentOptions = {
  format: {
    kind: 'choice',
    of: documentFormats,
    value: 'FORMAT',
    default: 'md',
    about: 'md, html or json; each contains the data as JSON',
  },
  key: {
    kind: 'text',
    value: 'FILE',
    about: 'signs the report with your key, from `breakwater key new`; asks for its passphrase',
  },
} as const

/** Largest file that `verifyDocument` reads, in bytes. */
const REPORT_BYTES = 100_000_000

/** Prints a report, signed with `key` if given. Resolves to the exit code. Rejects with an `UnusableInput`. */
export async function printDocument<Report>(
  kind: DocumentKind<Report>,
  report: Report,
  { format, key }: { readonly format: string; readonly key: string | undefined },
  out: Output,
): Promise<number> {
  const signer = key === undefined ? undefined : await openSigner(key, out)
  const signature = signer?.sign(kind.kind, signedPart(report, signer.by)) ?? null
  out.stdout(shownDocument(kind, { report, signature }, format as DocumentFormat).trimEnd())
  if (signature !== null)
    out.stderr(`breakwater: signed by ${signature.by} with key ${signature.keyId}: ${signature.value}`)
  return 0
}

/** Returns a document as the terminal shows it: a file with the document verifies, whichever way it was written. */
export const shownDocument = <Report>(
  kind: DocumentKind<Report>,
  signed: Signed<Report>,
  format: DocumentFormat,
): string =>
  rendered(kind, signed, format)
    .split('\n')
    .map((line) => printable(line, Infinity))
    .join('\n')

/** A document in a file, whatever its kind. */
interface Found {
  readonly signed: Signed<{ readonly version: string; readonly madeAt: string }>
  readonly isSignedBy: (key: NonNullable<ReturnType<typeof readPublicKey>>) => boolean
  readonly shown: () => string
  /** The report in a few words. */
  readonly words: string
}

function found<Report extends { readonly version: string; readonly madeAt: string }>(
  kind: DocumentKind<Report>,
  { format, json }: { readonly format: DocumentFormat; readonly json: string },
  wordsOf: (report: Report) => string,
): Found | undefined {
  const signed = documentIn(kind, parseJson(json))
  if (signed === undefined) return undefined
  const { report, signature } = signed
  return {
    signed,
    isSignedBy: (key) =>
      signature !== null && isSignedWith(kind.kind, signedPart(report, signature.by), signature, key),
    shown: () => shownDocument(kind, signed, format),
    words: wordsOf(report),
  }
}

/**
 * Checks that nobody changed a signed report, of any kind and in any format. `trust`: the public key of the signer, after the name and `=` if given.
 * Resolves to the exit code. Rejects with a `Misuse` or an `UnusableInput`.
 */
export async function verifyDocument(file: string, trust: string | undefined, out: Output): Promise<number> {
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
  const document = documentOf(bytes.toString())
  if (document === undefined)
    throw new UnusableInput(
      `${file} holds no report of \`breakwater evidence report\` or \`breakwater gameday report\`, or a changed report`,
    )
  const { report, signature } = document.signed
  if (signature === null) throw new UnusableInput(`${file} is not signed`)
  const { by, keyId, value } = signature
  if (keyId !== keyIdOf(publicText))
    throw new UnusableInput(
      `${file} is signed with the key ${keyId}, and you trust the key ${keyIdOf(publicText)}`,
    )
  if (name !== undefined && name !== by)
    throw new UnusableInput(`${file} is signed by ${printable(by)}, and you trust the key of ${name}`)
  const isWhole = Buffer.from(value, 'base64url').toString('base64url') === value
  if (!isWhole || !document.isSignedBy(key))
    throw new UnusableInput(`${file} was changed: the signature does not match`)
  // Different bytes may read as the same text: those of invalid UTF-8.
  const shown = document.shown()
  if (![shown, shown.replace(/\n$/, '')].some((one) => Buffer.from(one).equals(bytes)))
    throw new UnusableInput(
      report.version === version
        ? `${file} was changed: its text differs from the text of its signed data`
        : `the signed data in ${file} is unchanged, but its text differs from the text by Breakwater ${version}; verify with ${report.version}`,
    )
  out.stdout(
    printablePainted(
      `${file} is unchanged: ${document.words}, made at ${report.madeAt}, signed by ${by} with key ${keyId}`,
    ),
  )
  return 0
}

function documentOf(text: string): Found | undefined {
  const data = dataIn(text)
  if (data === undefined) return undefined
  return (
    found(evidenceDocument, data, ({ framework, period }) => `${framework}, ${period.name}`) ??
    found(gameDayDocument, data, ({ gameDay: { name, id } }) => `GameDay ${name}, ${id}`)
  )
}
