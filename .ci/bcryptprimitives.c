/* Go's runtime takes its random numbers from bcryptprimitives.dll, which Wine has only since
   version 9. This one hands them on from advapi32. */
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T n) { return SystemFunction036(data, (ULONG)n); }
