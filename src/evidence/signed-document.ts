import { z } from 'zod'
import { type Signature, signatureSchema, type SignedKind } from '../approval/keys.ts'
import { type Block, markdownBlock, markdownLine } from '../experiments/blocks.ts'
import { jsonMarkup, type Markup, markup } from '../experiments/html/markup.ts'
import { blockMarkup, type Page, pageOf } from '../experiments/html/page.ts'

/** Reports that a person may sign, as one file with the report's data inside: whoever has the file can verify the file. */

export interface Section {
  readonly title: string
  readonly blocks: readonly Block[]
}

/** A kind of report. Every text of a document comes from its report, so that a reader can write the document anew. */
export interface DocumentKind<Report> {
  /** The kind that the signed bytes contain. */
  readonly kind: SignedKind
  readonly schema: z.ZodType<Report>
  readonly titleOf: (report: Report) => string
  readonly sectionsOf: (signed: Signed<Report>) => readonly Section[]
  /** Shown by an HTML page above the sections; undefined: the title. */
  readonly headOf?: (report: Report) => Markup
  /** The charts of an HTML page; undefined without data to draw. */
  readonly chartsOf?: (report: Report) => Page['charts']
}

/** A report with its signature; null for an unsigned report. */
export interface Signed<Report> {
  readonly report: Report
  readonly signature: Signature | null
}

/** Returns the part of a report that a signature covers: the report, and the name of the signer. */
export const signedPart = <Report>(report: Report, by: string) => ({ by, report })

export const documentFormats = ['md', 'html', 'json'] as const
export type DocumentFormat = (typeof documentFormats)[number]

/** Returns a document as a text with a line break at its end. Each format contains the whole report as JSON. */
export function rendered<Report>(
  kind: DocumentKind<Report>,
  signed: Signed<Report>,
  format: DocumentFormat,
): string {
  switch (format) {
    case 'md':
      return markdownOf(kind, signed)
    case 'html':
      return htmlOf(kind, signed)
    case 'json':
      return `${JSON.stringify(ordered(signed), undefined, 2)}\n`
  }
}

/** Returns both parts in a fixed order, because a reader compares the bytes. */
const ordered = <Report>({ report, signature }: Signed<Report>): Signed<Report> => ({ report, signature })

function markdownOf<Report>({ titleOf, sectionsOf }: DocumentKind<Report>, signed: Signed<Report>): string {
  return `${[
    `# ${markdownLine(titleOf(signed.report))}`,
    ...sectionsOf(signed).flatMap(({ title, blocks }) => [
      `## ${markdownLine(title)}`,
      ...blocks.map(markdownBlock),
    ]),
    '## Data',
    `\`\`\`json\n${JSON.stringify(ordered(signed))}\n\`\`\``,
  ].join('\n\n')}\n`
}

function htmlOf<Report>(
  { titleOf, sectionsOf, headOf, chartsOf }: DocumentKind<Report>,
  signed: Signed<Report>,
): string {
  const { report } = signed
  const title = titleOf(report)
  return pageOf({
    title,
    charts: chartsOf?.(report),
    body: markup`${headOf?.(report) ?? markup`<h1>${title}</h1>`}
${sectionsOf(signed).map(
  ({ title, blocks }) => markup`<section><h2>${title}</h2>
${blocks.map((block) => blockMarkup(block, title))}
</section>
`,
)}<script type="application/json" id="evidence">${jsonMarkup(ordered(signed))}</script>`,
  })
}

const IN_HTML = /<script type="application\/json" id="evidence">(.*)<\/script>/
const IN_MARKDOWN = /^```json\n(.*)\n```\n*$/m

/** Returns the JSON text in a document, with the format; undefined for any other text. */
export function dataIn(text: string): { readonly format: DocumentFormat; readonly json: string } | undefined {
  if (text.startsWith('{')) return { format: 'json', json: text }
  const format = text.startsWith('<') ? 'html' : 'md'
  const [, json] = (format === 'html' ? IN_HTML : IN_MARKDOWN).exec(text) ?? []
  return json === undefined ? undefined : { format, json }
}

/** Returns the document in parsed JSON; undefined for JSON of another kind. */
export function documentIn<Report>(
  { schema }: DocumentKind<Report>,
  value: unknown,
): Signed<Report> | undefined {
  return z.strictObject({ report: schema, signature: signatureSchema.nullable() }).safeParse(value).data
}

/** Returns the line about the signature. */
export const signatureInWords = (signature: Signature | null): string =>
  signature === null
    ? 'not signed'
    : `signed by ${signature.by} with key ${signature.keyId}: ${signature.value}`
