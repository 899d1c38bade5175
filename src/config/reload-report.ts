/** What came of a reload, or of the attempt. */
export type ReloadReport =
  | {
      readonly ok: true
      readonly hash: string
      /** Keys that changed in the file and take effect when the process starts anew. */
      readonly needsRestart: readonly string[]
      readonly warnings: readonly string[]
    }
  | { readonly ok: false; readonly errors: readonly string[] }
