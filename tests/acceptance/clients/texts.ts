// What all TypeScript quickstarts send, and how they say what they got.
declare const process: { env: Record<string, string | undefined> };

export const url = process.env["UAC_URL"] ?? "";
export const key = process.env["UAC_KEY"] ?? "";
export const user = process.env["UAC_USER"] ?? "";
export const texts: { source: string; tests: string } = JSON.parse(process.env["UAC_TEXTS"] ?? "");
export const code = "sum(trip.cost for trip in trips if trip.on.year == 2026)";

export function record(domain: string, type: string, data: Record<string, unknown>) {
  return { kind: "record" as const, domain, type, data };
}

export const entries = [
  record("travel", "Trip", { to: "Rome", on: "2026-05-02", cost: 840 }),
  record("travel", "Trip", { to: "Oslo", on: "2026-09-11", cost: 1260 }),
  record("health", "Allergy", { allergen: "penicillin", drug_class: "penicillin" }),
  record("health", "Medication", { name: "Ibuprofen", drug_class: "nsaid" }),
];
export const amoxicillin = record("health", "Medication", {
  name: "Amoxicillin",
  drug_class: "penicillin",
});

export function present<T>(value: T | undefined | null, why: unknown): T {
  if (value === undefined || value === null) throw new Error(JSON.stringify(why));
  return value;
}
